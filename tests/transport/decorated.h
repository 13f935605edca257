// What every decorator of transports is tested with.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "leat/stats.h"
#include "support/channel_side.h"
#include "support/pattern.h"
#include "support/transport_side.h"
#include "transport/sealed/record.h"

namespace leat::detail {

class DecoratedChannels : public ChannelTest {
 protected:
  void expect_all_sizes_and_the_end() const {
    const std::vector<std::size_t> sizes = {0, 1, 48, 49, 4096, 100'000, 3'000'000};
    run(
        [&](ChannelSide& side) {
          std::uint64_t seed = 0;
          for (const std::size_t bytes : sizes)
            for (const unsigned context : {0U, 9U})
              send_pattern(side.channel, bytes, ++seed, context);
          side.channel.shutdown();
        },
        [&](ChannelSide& side) {
          std::uint64_t seed = 0;
          for (const std::size_t bytes : sizes)
            for (const unsigned context : {0U, 9U})
              expect_message(side.channel.receive(context), bytes, ++seed);
          EXPECT_FALSE(side.channel.receive());
          EXPECT_FALSE(side.channel.receive(9));
          EXPECT_EQ(side.channel.stats().refused_records, 0U);
        });
  }
};

inline Stats stats_of(const TransportSide& side) {
  Stats stats;
  side.transport->add_stats(stats);
  return stats;
}

// Sends messages over `decorator` and transport chunked, whose queue pair fails with some of them
// on their way: each arrives once, in order, and none is refused. `look` sees each one and its
// number. `key_limits`: of a sealed one; none: the defaults.
inline void expect_the_same_records_again(
    const std::string& decorator,
    const std::function<void(const Delivery&, std::uint64_t)>& look = {},
    const std::optional<KeyLimits>& key_limits = {}) {
  constexpr std::uint64_t kMessages = 40;
  constexpr std::size_t kBytes = 100'000;
  TransportSetup setup;
  setup.transport = decorator + "chunked";
  setup.resumes = true;
  setup.key_limits = key_limits;
  setup.first = {.failing_request = 37, .like_hardware = true};
  setup.second = {.like_hardware = true};
  setup.settings = {.max_message_bytes = 1 << 20,
                    .chunked_chunk_bytes = 48 * 1024,
                    .chunked_region_bytes = 256 * 1024,
                    .chunked_region_count = 2,
                    .chunked_resume_timeout = hang_limit()};
  run_transports(
      kUsualPeers, setup,
      [&](TransportSide& side) {
        side.watches_lifeline = false;
        for (std::uint64_t n = 0; n < kMessages; ++n) side.send(pattern(kBytes, n), 0);
        side.end();
        // It resumes only while it is called.
        Delivery delivery;
        for (const Deadline deadline = hang_deadline(); !side.peer.has_word() && !passed(deadline);)
          EXPECT_NE(side.transport->try_receive(0, delivery), ReceiveResult::kMessage);
        side.peer.hear("received");
        EXPECT_GE(stats_of(side).resumes, 1U) << "nothing failed";
      },
      [&](TransportSide& side) {
        side.watches_lifeline = false;
        Delivery delivery;
        for (std::uint64_t n = 0; n < kMessages; ++n) {
          ASSERT_TRUE(side.receive(0, delivery));
          EXPECT_EQ(pattern_mismatch(bytes_of(delivery), n), kBytes);
          if (look) look(delivery, n);
          side.transport->release(delivery);
        }
        EXPECT_FALSE(side.receive(0, delivery));
        EXPECT_EQ(stats_of(side).refused_records, 0U);
        side.peer.tell("received");
      });
}

}  // namespace leat::detail
