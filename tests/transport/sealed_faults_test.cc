// Sealed messages over a device that fails, changes bytes, or writes them again: every message that
// is handed out is one that was sealed, in its order, and the end comes behind all of them.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
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

// Whether each flow has one key for all its messages, or a new one for every third record.
enum class SealedKeys { kOne, kMany };
void PrintTo(SealedKeys keys, std::ostream* out) {
  *out << (keys == SealedKeys::kOne ? "one key" : "many keys");
}
constexpr KeyLimits kManyKeys = {.records = 3};

TransportSetup sealed_setup(const std::string& transport, SealedKeys keys) {
  TransportSetup setup;
  setup.transport = transport;
  setup.settings.max_message_bytes = 1 << 20;
  if (keys == SealedKeys::kMany) setup.key_limits = kManyKeys;
  return setup;
}

// How a stream of messages ended at the receiver.
struct SealedOutcome {
  std::uint64_t messages = 0;
  std::uint64_t refused = 0;
  std::optional<ErrorCode> error;  // none: the end
};

// Sends all messages and the end from the first side to the second. What `judge` writes reaches the
// caller if the sides are threads.
void run_sealed_stream(const TransportSetup& setup,
                       const std::function<void(const SealedOutcome&)>& judge,
                       PeerMode mode = kUsualPeers) {
  run_transports(
      mode, setup,
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

// What must hold whatever the fault was.
void expect_intact_part(const SealedOutcome& outcome) {
  EXPECT_LE(outcome.messages, kSealedMessages);
  if (!outcome.error) {
    EXPECT_EQ(outcome.messages, kSealedMessages) << "the rest is missing";
  }
  // The seal refuses one record, and looks at none behind it. Where X saw the fault before, or
  // nothing was wrong, the seal refuses none.
  EXPECT_EQ(outcome.refused, outcome.error == ErrorCode::kAuthentication ? 1U : 0U);
}

// Parameters: transport, seed, keys.
class SealedFaults
    : public testing::TestWithParam<std::tuple<std::string, std::uint64_t, SealedKeys>> {
 protected:
  std::uint64_t seed() const { return std::get<1>(GetParam()); }
  TransportSetup setup() const {
    return sealed_setup(std::get<0>(GetParam()), std::get<2>(GetParam()));
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
                                          testing::Range<std::uint64_t>(1, 9),
                                          testing::Values(SealedKeys::kOne, SealedKeys::kMany)),
                         [](const auto& tested) {
                           const bool many = std::get<2>(tested.param) == SealedKeys::kMany;
                           return device_label(std::get<0>(tested.param)) + "_" +
                                  std::to_string(std::get<1>(tested.param)) +
                                  (many ? "_many_keys" : "");
                         });

TEST_P(SealedFaults, ABitFlippedByTheDeviceChangesNoMessage) {
  TransportSetup faulty = setup();
  faulty.first = {.seed = seed(), .flipped_request = seed() * 3};
  run_sealed_stream(faulty, expect_intact_part);
}

TEST_P(SealedFaults, AWriteThatComesTwiceGivesNoMessageTwice) {
  TransportSetup faulty = setup();
  faulty.first = {.seed = seed(), .replayed_request = seed() * 3};
  run_sealed_stream(faulty, expect_intact_part);
}

TEST_P(SealedFaults, AQueuePairThatFailsGivesAnIntactPart) {
  TransportSetup faulty = setup();
  faulty.first = {.seed = seed(), .failing_request = seed() * 5};
  run_sealed_stream(faulty, expect_intact_part);
}

// Of the faults above only a flipped bit comes as far as the seal, over every X. A write that comes
// twice is refused by X itself, or puts the same bytes in the same place again, as with batched; a
// queue pair that fails ends X, and no record is wrong. Parameters: transport, keys.
class SealedRefusals : public testing::TestWithParam<std::tuple<std::string, SealedKeys>> {};

INSTANTIATE_TEST_SUITE_P(Devices, SealedRefusals,
                         testing::Combine(testing::ValuesIn(sealed_over_all()),
                                          testing::Values(SealedKeys::kOne, SealedKeys::kMany)),
                         [](const auto& tested) {
                           const bool many = std::get<1>(tested.param) == SealedKeys::kMany;
                           return device_label(std::get<0>(tested.param)) +
                                  (many ? "_many_keys" : "");
                         });

// Which request holds a record, and not a word of X's own, is X's affair: so one after another has
// its bit flipped until the seal refuses one, of many keys under the second or a later one.
TEST_P(SealedRefusals, OfARecordWithAFlippedBitAreCountedOnce) {
  const auto& [transport, keys] = GetParam();
  TransportSetup faulty = sealed_setup(transport, keys);
  const std::uint64_t least = keys == SealedKeys::kMany ? kManyKeys.records : 0;
  bool refused = false;
  for (std::uint64_t request = 1; !refused && request <= 3 * kSealedMessages; ++request) {
    faulty.first = {.seed = request, .flipped_request = request};
    const auto judge = [&refused, least](const SealedOutcome& outcome) {
      expect_intact_part(outcome);
      refused = outcome.refused == 1 && outcome.messages >= least;
    };
    run_sealed_stream(faulty, judge, PeerMode::kThreads);
  }
  EXPECT_TRUE(refused) << "no flipped bit came as far as the seal";
}

// A queue pair that fails with records on their way: they come once more as they were sealed, under
// the numbers that they had, so that none is missing, none comes twice, and no nonce serves twice.
TEST(SealedResumption, SendsTheSameRecordsAgain) { expect_the_same_records_again("sealed+"); }

TEST(SealedResumption, SendsTheSameRecordsAgainWhileKeysChange) {
  expect_the_same_records_again("sealed+", {}, kManyKeys);
}

}  // namespace
}  // namespace leat::detail
