// Errors at the receiver of transport chunked that are not the path's fault: it keeps what it gets,
// or fails in the middle of it.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "support/channel_side.h"
#include "support/devices.h"

namespace leat::detail {
namespace {

constexpr std::size_t kErrorRegionBytes = 128 << 10;
constexpr std::size_t kErrorRegions = 2;
constexpr std::size_t kErrorMessageBytes = 50'000;  // two in a region

struct DiskFull {};

// Parameters: what carries the channel, threads or processes.
class ChunkedErrors : public ChannelTest {
 protected:
  static void small_regions(Options& options) {
    options.chunked_region_bytes = kErrorRegionBytes;
    options.chunked_region_count = kErrorRegions;
  }
};

TEST_P(ChunkedErrors, ReceiverThatNeverReleasesHoldsUpItsOwnContextUntilItDoes) {
  run(
      [](ChannelSide& side) {
        const auto count = side.peer.hear_value<std::size_t>();
        // It has kept as many as there is room for, and not one more came.
        EXPECT_GE(count, kErrorRegions);
        EXPECT_LE(count * kErrorMessageBytes, kErrorRegions * kErrorRegionBytes);
        std::vector<Message> kept;
        for (std::size_t i = 0; i < count; ++i) {
          kept.push_back(side.channel.receive());
          ASSERT_NO_FATAL_FAILURE(expect_message(kept.back(), kErrorMessageBytes, i));
        }
        side.peer.tell("kept");
        for (std::size_t i = 0; i < 20; ++i)
          ASSERT_NO_FATAL_FAILURE(expect_message(side.channel.receive(3), 1000, i));
        side.peer.hear("went on");
        for (std::size_t i = 0; i < count; ++i) {  // untouched by what waits
          expect_message(kept[i], kErrorMessageBytes, i);
          kept[i].release();
        }
        for (std::size_t i = count; i < count + 20; ++i)
          ASSERT_NO_FATAL_FAILURE(expect_message(side.channel.receive(), kErrorMessageBytes, i));
      },
      [](ChannelSide& side) {
        std::size_t count = 0;
        expect_error(ErrorCode::kTimeout, [&] {
          for (;; ++count) send_pattern(side.channel, kErrorMessageBytes, count);
        });
        side.peer.tell_value(count);
        side.peer.hear("kept");
        for (std::size_t i = 0; i < 20; ++i)
          patiently([&] { send_pattern(side.channel, 1000, i, 3); });
        side.peer.tell("went on");
        for (std::size_t i = count; i < count + 20; ++i)
          patiently([&] { send_pattern(side.channel, kErrorMessageBytes, i); });
      },
      {.first_options = small_regions, .second_options = [](Options& options) {
         small_regions(options);
         options.timeout = std::chrono::seconds(1);
       }});
}

TEST_P(ChunkedErrors, HandlerThatFailsGivesItsMemoryBackAndTheChannelGoesOn) {
  constexpr std::size_t kCount = 60;  // many times what the regions hold
  // One in three is larger than a region and so put together.
  const auto size_of = [](std::size_t i) {
    return i % 3 == 0 ? 3 * kErrorRegionBytes : kErrorMessageBytes;
  };
  run(
      [&](ChannelSide& side) {
        std::size_t failures = 0;
        for (std::size_t i = 0; i < kCount; ++i) {
          try {
            const Message message = side.channel.receive();
            if (i % 2 == 0) throw DiskFull();
            ASSERT_NO_FATAL_FAILURE(expect_message(message, size_of(i), i));
          } catch (const DiskFull&) {
            ++failures;
          }
        }
        EXPECT_EQ(failures, kCount / 2);
        send_pattern(side.channel, 10, 1);
      },
      [&](ChannelSide& side) {
        for (std::size_t i = 0; i < kCount; ++i) send_pattern(side.channel, size_of(i), i);
        expect_message(side.channel.receive(), 10, 1);
      },
      {.first_options = small_regions, .second_options = small_regions});
}

std::vector<ChannelKind> chunked_kinds() {
  std::vector<ChannelKind> kinds;
  for (const ChannelKind& kind : channel_kinds())
    if (kind.transport == "chunked") kinds.push_back(kind);
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Channels, ChunkedErrors,
                         testing::Combine(testing::ValuesIn(chunked_kinds()),
                                          testing::Values(PeerMode::kThreads,
                                                          PeerMode::kProcesses)),
                         channel_test_name);

}  // namespace
}  // namespace leat::detail
