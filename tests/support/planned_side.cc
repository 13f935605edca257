#include "support/planned_side.h"

#include <algorithm>
#include <utility>

namespace leat::detail {

std::vector<ChannelKind> planned_kinds() {
  std::vector<ChannelKind> kinds = channel_kinds();
  std::erase_if(kinds, [](const ChannelKind& kind) { return kind.transport != "planned"; });
  return kinds;
}

void PlannedTest::run(const PlannedBody& first, const PlannedBody& second,
                      const ChannelSetup& setup) const {
  const auto over = [](const PlannedBody& body) {
    return [&body](ChannelSide& side) {
      PlannedSide planned{side.peer, PlannedChannel(std::move(side.channel))};
      body(planned);
      side.channel = std::move(planned.channel.channel());  // closed when both have returned
    };
  };
  ChannelTest::run(over(first), over(second), setup);
}

std::vector<std::byte> messages(const MessageArray& array, unsigned context, std::uint64_t round,
                                bool first_side, std::uint64_t index, std::uint64_t count) {
  std::vector<std::byte> bytes(array.message_bytes * count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t seed = ((round * kArrayContexts + context) * 2 + (first_side ? 1 : 0))
                               << 32;
    fill_pattern(std::span(bytes).subspan(i * array.message_bytes, array.message_bytes),
                 seed + index + i);
  }
  return bytes;
}

void expect_messages(std::span<const std::byte> bytes, const MessageArray& array, unsigned context,
                     std::uint64_t round, bool first_side, std::uint64_t index,
                     std::uint64_t count) {
  ASSERT_EQ(bytes.size(), array.message_bytes * count);
  const auto expected = messages(array, context, round, first_side, index, count);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.begin()))
      << count << " messages from " << index << " of context " << context << ", round " << round;
}

}  // namespace leat::detail
