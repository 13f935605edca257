// Attested messages over a device that fails or changes bytes: tests/trusted/README.md numbers the
// cases.
#include <gtest/gtest.h>

#include <vector>

#include "support/errors.h"
#include "support/pattern.h"
#include "support/scale.h"
#include "support/transport_side.h"
#include "transport/attested/attested.h"
#include "transport/decorated.h"

namespace leat::detail {
namespace {

trusted::RecordHeader header_of(const Delivery& delivery) {
  return trusted::read_header(AttestedTransport::record_around(bytes_of(delivery))).value();
}

// Case 39. A queue pair that fails with records on their way: they come once more as they were
// attested, under the counters that they had, and the receiver sees no gap and no second one.
TEST(AttestedFaults, after_a_queue_pair_failed_the_same_records_are_sent_again) {
  expect_the_same_records_again("attested+", [](const Delivery& delivery, std::uint64_t n) {
    EXPECT_EQ(header_of(delivery).counter, n);
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
      kUsualPeers, setup,
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
        EXPECT_EQ(stats_of(side).refused_records, 2U)
            << "the one that was changed, and the one behind it";
        side.peer.tell("received");
      });
}

}  // namespace
}  // namespace leat::detail
