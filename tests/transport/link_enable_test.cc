// The chunk that opens a path goes first, short and alone, in both modes of transport chunked. The
// test's device carries a transport's requests back to it.
#include <gtest/gtest.h>

#include <cstring>
#include <tuple>
#include <vector>

#include "support/pattern.h"
#include "support/scale.h"
#include "support/scripted_device.h"
#include "transport/chunked/chunked.h"

namespace leat::detail {
namespace {

constexpr std::size_t kLinkMessageBytes = 600'000;
constexpr std::size_t kLinkChunkBytes = 200'000;

// Parameters: mode, chunks in flight.
class LinkEnableTest : public testing::TestWithParam<std::tuple<ChunkMode, std::size_t>> {
 protected:
  // The bytes of each request of a message that was sent over a path that was silent.
  std::vector<std::size_t> requests_of_a_message(LinkEnable link) {
    Script script;
    std::vector<std::size_t> sizes;
    script.posted = [&](const SendRequest& request) {
      if (link != LinkEnable::kOff && sizes.size() == 1) {
        EXPECT_TRUE(script.done.empty()) << "it does not go alone";
      }
      // Its own regions stand for the peer's.
      if (request.bytes != 0)
        std::memcpy(reinterpret_cast<std::byte*>(request.remote_address), request.local,
                    request.bytes);
      if (request.bytes >= kPlaceUnitBytes) sizes.push_back(request.bytes);
      if (request.opcode == Opcode::kWriteWithImmediate)
        script.arrivals.push_back({.kind = CompletionKind::kImmediate,
                                   .immediate = request.immediate,
                                   .bytes = static_cast<std::uint32_t>(request.bytes)});
    };
    ChunkedOptions options;
    options.mode = std::get<0>(GetParam());
    options.window = std::get<1>(GetParam());
    options.link_enable = link;
    options.chunk_bytes = kLinkChunkBytes;
    options.region_bytes = 2 * kLinkMessageBytes;
    options.max_message_bytes = 2 * kLinkMessageBytes;
    ChunkedTransport transport(scripted_device(script), scripted_queue_pair(script), options,
                               nullptr);
    transport.start(transport.setup());
    std::vector<std::byte> message(kLinkMessageBytes);
    fill_pattern(message, 1);
    const Deadline deadline = hang_deadline();
    while (!sent(transport.try_send(message, 0)) && !passed(deadline)) {
    }
    Delivery delivery;
    EXPECT_EQ(transport.try_receive(0, delivery), ReceiveResult::kMessage);
    const std::span<const std::byte> bytes(delivery.data, delivery.bytes);
    EXPECT_EQ(bytes.size(), kLinkMessageBytes);
    EXPECT_EQ(pattern_mismatch(bytes, 1), kLinkMessageBytes);
    if (delivery.must_release) transport.release(delivery);
    return sizes;
  }
};

TEST_P(LinkEnableTest, AShortChunkGoesFirstAndAlone) {
  for (const LinkEnable link : {LinkEnable::kOn, LinkEnable::kAuto}) {
    const std::vector<std::size_t> sizes = requests_of_a_message(link);
    ASSERT_GT(sizes.size(), 1u);
    EXPECT_EQ(sizes.front(), kLinkBytes);
  }
}

TEST_P(LinkEnableTest, OffAllChunksAreLong) {
  EXPECT_GT(requests_of_a_message(LinkEnable::kOff).front(), kLinkBytes);
}

INSTANTIATE_TEST_SUITE_P(Chunks, LinkEnableTest,
                         testing::Combine(testing::Values(ChunkMode::kInPlace, ChunkMode::kHeader),
                                          testing::Values(std::size_t{0}, std::size_t{1},
                                                          std::size_t{4})));

}  // namespace
}  // namespace leat::detail
