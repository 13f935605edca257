// Sealed messages over a device that fails, changes bytes, or writes them again: every message that
// is handed out is one that was sealed, in its order, and the end comes behind all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "support/devices.h"
#include "support/errors.h"
#include "support/pattern.h"
#include "support/scale.h"
#include "support/transport_side.h"
#include "transport/decorated.h"
#include "transport/sealed/record.h"
#include "transport/table.h"

namespace leat::detail {
namespace {

constexpr std::uint64_t kSealedMessages = 60;

std::size_t sealed_message_bytes(std::uint64_t n) { return n % 7 * 211 + n % 3; }

TransportSetup sealed_setup(const std::string& transport) {
  TransportSetup setup;
  setup.transport = transport;
  setup.settings.max_message_bytes = 1 << 20;
  return setup;
}

// How a stream of messages ended at the receiver.
struct SealedOutcome {
  std::uint64_t messages = 0;
  std::uint64_t refused = 0;
  std::optional<ErrorCode> error;  // none: the end
};

// Sends all messages and the end from the first side to the second.
void run_sealed_stream(const TransportSetup& setup,
                       const std::function<void(const SealedOutcome&)>& judge) {
  run_transports(
      kUsualPeers, setup,
      [](TransportSide& side) {
        std::string error;
        std::uint64_t n = 0;
        try {
          for (; n < kSealedMessages; ++n) side.send(pattern(sealed_message_bytes(n), n), 0);
          side.end();
        } catch (const Error& why) {
          error = why.what();
        }
        side.tell_outcome(n, error);
        side.hear_outcome();
      },
      [&](TransportSide& side) {
        SealedOutcome outcome;
        Delivery delivery;
        try {
          while (side.receive(0, delivery)) {
            const auto bytes = bytes_of(delivery);
            EXPECT_EQ(bytes.size(), sealed_message_bytes(outcome.messages));
            EXPECT_EQ(pattern_mismatch(bytes, outcome.messages), bytes.size());
            ++outcome.messages;
            if (delivery.must_release) side.transport->release(delivery);
          }
        } catch (const Error& error) {
          outcome.error = error.code();
        }
        Stats stats;
        side.transport->add_stats(stats);
        outcome.refused = stats.refused_records;
        side.tell_outcome(outcome.messages, outcome.error ? "over" : "");
        side.hear_outcome();
        judge(outcome);
      });
}

// Parameters: transport, seed.
class SealedFaults : public testing::TestWithParam<std::tuple<std::string, std::uint64_t>> {
 protected:
  const std::string& transport() const { return std::get<0>(GetParam()); }
  std::uint64_t seed() const { return std::get<1>(GetParam()); }
  static void expect_part(const SealedOutcome& outcome) {
    EXPECT_LE(outcome.messages, kSealedMessages);
    if (!outcome.error) {
      EXPECT_EQ(outcome.messages, kSealedMessages) << "the rest is missing";
      EXPECT_EQ(outcome.refused, 0U);
    }
  }
};

std::vector<std::string> sealed_over_all() {
  std::vector<std::string> names;
  for (const TransportRow& row : transport_rows())
    if (row.rdma) names.push_back(std::string("sealed+") + row.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Devices, SealedFaults,
                         testing::Combine(testing::ValuesIn(sealed_over_all()),
                                          testing::Range<std::uint64_t>(1, 9)),
                         [](const auto& tested) {
                           return device_label(std::get<0>(tested.param)) + "_" +
                                  std::to_string(std::get<1>(tested.param));
                         });

TEST_P(SealedFaults, ABitFlippedByTheDeviceChangesNoMessage) {
  TransportSetup setup = sealed_setup(transport());
  setup.first = {.seed = seed(), .flipped_request = seed() * 3};
  run_sealed_stream(setup, expect_part);
}

TEST_P(SealedFaults, AWriteThatComesTwiceGivesNoMessageTwice) {
  TransportSetup setup = sealed_setup(transport());
  setup.first = {.seed = seed(), .replayed_request = seed() * 3};
  run_sealed_stream(setup, expect_part);
}

TEST_P(SealedFaults, AQueuePairThatFailsGivesAnIntactPart) {
  TransportSetup setup = sealed_setup(transport());
  setup.first = {.seed = seed(), .failing_request = seed() * 5};
  run_sealed_stream(setup, expect_part);
}

// A queue pair that fails with records on their way: they come once more as they were sealed, under
// the numbers that they had, so that none is missing, none comes twice, and no nonce serves twice.
TEST(SealedResumption, SendsTheSameRecordsAgain) { expect_the_same_records_again("sealed+"); }

}  // namespace
}  // namespace leat::detail
