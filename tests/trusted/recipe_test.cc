// The transformation recipe: replicas of a counter, one of which may lie. README.md beside this
// numbers the cases.
#include "leat/attest/recipe.h"

#include <gtest/gtest.h>

#include <string>

#include "support/channel_side.h"
#include "support/devices.h"
#include "support/errors.h"
#include "trusted/kernel_support.h"

namespace leat::trusted {
namespace {

constexpr std::uint32_t kFromLeader = 300, kFromFollower = 301;

// Device 1 leads, 2 follows, 3 is a third party; each of 1 and 2 sends to a group of the two
// others.
class Recipe : public testing::Test {
 protected:
  Recipe() : leader_(1, kEpoch), follower_(2, kEpoch), third_(3, kEpoch) {
    const Key first = session_key(1), second = session_key(2);
    leader_.provision({.id = kFromLeader, .role = Role::kGroupSender, .key = first});
    for (LocalKernel* kernel : {&follower_, &third_})
      kernel->provision({.id = kFromLeader, .role = Role::kGroupReceiver, .peer = 1, .key = first});
    follower_.provision({.id = kFromFollower, .role = Role::kGroupSender, .key = second});
    for (LocalKernel* kernel : {&leader_, &third_})
      kernel->provision(
          {.id = kFromFollower, .role = Role::kGroupReceiver, .peer = 2, .key = second});
    for (LocalKernel* kernel : {&leader_, &follower_, &third_}) kernel->enable();
  }

  // The leader's counter is the sum of the numbers in its messages.
  Record from_leader(int added, int state, const Record& receiver_state = {}) {
    return send(leader_, {.session = kFromLeader}, bytes_of(std::to_string(added)),
                bytes_of(std::to_string(state)), receiver_state);
  }
  Record from_follower(const char* text) {
    return send(follower_, {.session = kFromFollower}, bytes_of(text), bytes_of("s"));
  }
  static Simulation adds_to(int before) {
    return [before](std::span<const std::byte> message) {
      const std::string text(reinterpret_cast<const char*>(message.data()), message.size());
      return digest_of(bytes_of(std::to_string(before + std::stoi(text))));
    };
  }

  LocalKernel leader_, follower_, third_;
};

TEST_F(Recipe, a_correct_sender_is_accepted) {
  const Received first = receive(follower_, from_leader(5, 5), Kind::kSend, adds_to(0));
  EXPECT_EQ(first.outcome, Outcome::kAccepted);
  EXPECT_EQ(first.message.size(), 1U);
  EXPECT_TRUE(first.evidence.empty());
  EXPECT_EQ(receive(follower_, from_leader(2, 7), Kind::kSend, adds_to(5)).outcome,
            Outcome::kAccepted);
}

TEST_F(Recipe, a_state_that_does_not_follow_exposes_its_sender_to_a_third_node) {
  const Received received = receive(follower_, from_leader(5, 6), Kind::kSend, adds_to(0));
  ASSERT_EQ(received.outcome, Outcome::kExposed);
  EXPECT_TRUE(received.message.empty());
  EXPECT_TRUE(proves(third_, received.evidence, Kind::kSend, adds_to(0)));
}

TEST_F(Recipe, evidence_that_is_forged_or_accuses_a_correct_sender_proves_nothing) {
  const Record correct = from_leader(5, 5);
  EXPECT_FALSE(proves(third_, correct, Kind::kSend, adds_to(0)));
  Record forged = correct;
  forged[kHeaderBytes + 4] = std::byte{'9'};
  EXPECT_FALSE(proves(third_, forged, Kind::kSend, adds_to(0)));
}

TEST_F(Recipe, a_sender_that_has_not_seen_the_latest_state_lags) {
  const Record older = from_follower("first");
  const Record latest = from_follower("second");
  EXPECT_EQ(receive(follower_, from_leader(1, 1, older), Kind::kSend, adds_to(0), latest).outcome,
            Outcome::kLagging);
  EXPECT_EQ(receive(follower_, from_leader(1, 2), Kind::kSend, adds_to(1), latest).outcome,
            Outcome::kLagging);
  EXPECT_EQ(receive(follower_, from_leader(1, 3, latest), Kind::kSend, adds_to(2), latest).outcome,
            Outcome::kAccepted);
}

TEST_F(Recipe, a_state_that_the_receiver_never_attested_exposes_its_sender_to_a_third_node) {
  const Record latest = from_follower("latest");
  Record future = latest;
  future[24] = std::byte{9};
  Record cut = latest;
  cut.pop_back();
  const Record another = attested(leader_, "of another session", {.session = kFromLeader});
  const RecordSource follower{.device = 2, .session = kFromFollower};
  EXPECT_EQ(receive(follower_, another, Kind::kSend, adds_to(0)).outcome, Outcome::kExposed);
  int state = 0;
  for (const Record& seen : {future, cut, Record(10), another}) {
    const int before = state++;
    const Received received =
        receive(follower_, from_leader(1, state, seen), Kind::kSend, adds_to(before), latest);
    ASSERT_EQ(received.outcome, Outcome::kExposed) << before;
    EXPECT_TRUE(proves(third_, received.evidence, Kind::kSend, adds_to(before), follower));
    EXPECT_FALSE(proves(third_, received.evidence, Kind::kSend, adds_to(before)))
        << "where that is not required";
  }
}

TEST_F(Recipe, what_a_third_node_cannot_check_or_a_correct_sender_sends_proves_nothing) {
  LocalKernel outsider(3, kEpoch);  // no member of the follower's session
  outsider.provision(
      {.id = kFromLeader, .role = Role::kGroupReceiver, .peer = 1, .key = session_key(1)});
  outsider.enable();
  const RecordSource follower{.device = 2, .session = kFromFollower};
  Record forged = from_follower("forged");
  forged[24] = std::byte{9};
  const Record lies = from_leader(1, 1, forged);
  EXPECT_TRUE(proves(third_, lies, Kind::kSend, adds_to(0), follower));
  EXPECT_FALSE(proves(outsider, lies, Kind::kSend, adds_to(0), follower));
  EXPECT_FALSE(proves(third_, from_leader(1, 1), Kind::kSend, adds_to(0), follower));
  EXPECT_FALSE(
      proves(third_, from_leader(1, 1, from_follower("x")), Kind::kSend, adds_to(0), follower));
}

// In a pair session both sides' records have the same session and stream.
TEST_F(Recipe, a_sender_that_passes_its_own_record_off_as_the_receivers_is_exposed) {
  Pair pair;
  const Statement both{.session = kSession};
  const auto from_a = [&](int state, const Record& seen) {
    return send(pair.a, both, bytes_of("1"), bytes_of(std::to_string(state)), seen);
  };
  const Record latest = attested(pair.b, "of the receiver", both);
  int state = 0;
  for (int i = 0; i < 3; ++i) {  // below, at and above the counter of `latest`
    const Record own = attested(pair.a, "of the sender", both);
    ASSERT_EQ(pair.b.verify(own, Kind::kSend), Verdict::kOk);
    const int before = state++;
    EXPECT_EQ(receive(pair.b, from_a(state, own), Kind::kSend, adds_to(before), latest).outcome,
              Outcome::kExposed);
  }
}

TEST_F(Recipe, a_latest_record_that_is_not_one_is_refused_before_anything_is_verified) {
  const Record record = from_leader(1, 1);
  leat::detail::expect_error(ErrorCode::kInvalidArgument, [&] {
    receive(follower_, record, Kind::kSend, adds_to(0), Record(10));
  });
  EXPECT_EQ(receive(follower_, record, Kind::kSend, adds_to(0)).outcome, Outcome::kAccepted);
}

// The caller's latest record was not its latest.
TEST_F(Recipe, a_state_later_than_was_asked_for_is_accepted) {
  const Record asked = from_follower("asked for");
  const Record later = from_follower("later");
  EXPECT_EQ(receive(follower_, from_leader(1, 1, later), Kind::kSend, adds_to(0), asked).outcome,
            Outcome::kAccepted);
}

TEST_F(Recipe, a_payload_that_is_no_message_exposes_its_sender) {
  for (const std::string& payload : {std::string("short"), std::string(40, '\xff')}) {
    const Record record = attested(leader_, payload, {.session = kFromLeader});
    EXPECT_EQ(receive(follower_, record, Kind::kSend, adds_to(0)).outcome, Outcome::kExposed);
    EXPECT_TRUE(proves(third_, record, Kind::kSend, adds_to(0)));
  }
}

TEST_F(Recipe, what_is_not_the_next_record_is_refused_and_accuses_nobody) {
  const Record record = from_leader(5, 5);
  Record changed = record;
  changed[kHeaderBytes + 5] ^= std::byte{1};
  const Received refused = receive(follower_, changed, Kind::kSend, adds_to(0));
  EXPECT_EQ(refused.outcome, Outcome::kRefused);
  EXPECT_EQ(refused.verdict, Verdict::kMac);
  EXPECT_EQ(receive(follower_, record, Kind::kSend, adds_to(0)).outcome, Outcome::kAccepted);
  EXPECT_EQ(receive(follower_, record, Kind::kSend, adds_to(0)).verdict, Verdict::kCounter);
}

TEST_F(Recipe, a_message_too_large_for_a_record_is_refused) {
  const std::span<const std::byte> huge(static_cast<const std::byte*>(nullptr), kMaxPayloadBytes);
  EXPECT_FALSE(leat::detail::error_of(ErrorCode::kTooLarge, [&] {
                 send(leader_, {.session = kFromLeader}, huge, bytes_of("s"));
               }).empty());
}

// --- records of channels

class KeptRecords : public leat::detail::ChannelTest {};

std::vector<leat::detail::ChannelKind> kept_kinds() {
  std::vector<leat::detail::ChannelKind> kinds;
  for (const std::string& device : leat::detail::test_devices())
    kinds.push_back({"attested+ring", device});
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Channels, KeptRecords,
                         testing::Combine(testing::ValuesIn(kept_kinds()),
                                          testing::Values(leat::detail::PeerMode::kProcesses)),
                         leat::detail::channel_test_name);

TEST_P(KeptRecords, a_message_of_an_attested_channel_has_its_record) {
  run([](leat::detail::ChannelSide& side) { side.channel.send("keep me", 3); },
      [](leat::detail::ChannelSide& side) {
        const Message message = side.channel.receive(3);
        const auto record = record_of(message);
        const auto header = read_header(record);
        ASSERT_TRUE(header);
        EXPECT_EQ(header->stream, 3);
        EXPECT_EQ(header->counter, 0U);
        EXPECT_EQ(text_of(record), "keep me");
        EXPECT_TRUE(record_of(Message()).empty());
      });
}

}  // namespace
}  // namespace leat::trusted
