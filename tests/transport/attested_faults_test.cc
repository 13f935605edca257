// Attested messages over a device that fails or changes bytes: tests/trusted/README.md numbers the
// cases.
#include <gtest/gtest.h>

#include <vector>

#include "support/errors.h"
#include "support/pattern.h"
#include "support/scale.h"
#include "support/transport_side.h"
#include "transport/attested/attested.h"

namespace leat::detail {
namespace {

constexpr PeerMode kMode = kThreadSanitizer ? PeerMode::kThreads : PeerMode::kProcesses;

trusted::RecordHeader header_of(const Delivery& delivery) {
  return trusted::read_header(AttestedTransport::record_around(bytes_of(delivery))).value();
}

std::uint64_t refused_by(const TransportSide& side) {
  Stats stats;
  side.transport->add_stats(stats);
  return stats.refused_records;
}

// Case 39. A queue pair that fails with records on their way: they come once more as they were
// attested, under the counters that they had, and the receiver sees no gap and no second one.
TEST(AttestedFaults, after_a_queue_pair_failed_the_same_records_are_sent_again) {
  constexpr std::uint64_t kMessages = 40;
  constexpr std::size_t kBytes = 100'000;
  TransportSetup setup;
  setup.transport = "attested+chunked";
  setup.resumes = true;
  setup.first = {.failing_request = 37, .like_hardware = true};
  setup.second = {.like_hardware = true};
  setup.settings = {.max_message_bytes = 1 << 20,
                    .chunked_chunk_bytes = 48 * 1024,
                    .chunked_region_bytes = 256 * 1024,
                    .chunked_region_count = 2,
                    .chunked_resume_timeout = hang_limit()};
  run_transports(
      kMode, setup,
      [&](TransportSide& side) {
        side.watches_lifeline = false;
        std::vector<std::byte> message(kBytes);
        for (std::uint64_t n = 0; n < kMessages; ++n) {
          fill_pattern(message, n);
          side.send(message, 0);
        }
        side.end();
        // It resumes only while it is called.
        Delivery delivery;
        for (const Deadline deadline = hang_deadline(); !side.peer.has_word() && !passed(deadline);)
          EXPECT_NE(side.transport->try_receive(0, delivery), ReceiveResult::kMessage);
        side.peer.hear("received");
        Stats stats;
        side.transport->add_stats(stats);
        EXPECT_GE(stats.resumes, 1U) << "nothing failed";
      },
      [&](TransportSide& side) {
        side.watches_lifeline = false;
        Delivery delivery;
        for (std::uint64_t n = 0; n < kMessages; ++n) {
          ASSERT_TRUE(side.receive(0, delivery));
          EXPECT_EQ(pattern_mismatch(bytes_of(delivery), n), kBytes);
          EXPECT_EQ(header_of(delivery).counter, n);
          side.transport->release(delivery);
        }
        EXPECT_FALSE(side.receive(0, delivery));
        EXPECT_EQ(refused_by(side), 0U);
        side.peer.tell("received");
      });
}

// Case 1, by the device: a bit of one write on its way.
TEST(AttestedFaults, a_bit_flipped_by_the_device_ends_what_is_delivered) {
  constexpr std::uint64_t kFlipped = 3;
  TransportSetup setup;
  setup.transport = "attested+ring";
  setup.first = {.seed = 5, .flipped_request = kFlipped};
  setup.settings.max_message_bytes = 1 << 20;
  run_transports(
      kMode, setup,
      [&](TransportSide& side) {
        std::vector<std::byte> message(500);
        for (std::uint64_t n = 0; n < 6; ++n) {
          fill_pattern(message, n);
          side.send(message, 0);
        }
        side.peer.tell("sent");
        side.peer.hear("received");
      },
      [&](TransportSide& side) {
        side.peer.hear("sent");
        Delivery delivery;
        for (std::uint64_t n = 0; n < kFlipped - 1; ++n) {
          ASSERT_TRUE(side.receive(0, delivery));
          EXPECT_EQ(pattern_mismatch(bytes_of(delivery), n), 500U);
          side.transport->release(delivery);
        }
        for (int i = 0; i < 2; ++i)
          expect_error(ErrorCode::kAuthentication,
                       [&] { side.transport->try_receive(0, delivery); });
        EXPECT_EQ(refused_by(side), 2U) << "the one that was changed, and the one behind it";
        side.peer.tell("received");
      });
}

}  // namespace
}  // namespace leat::detail
