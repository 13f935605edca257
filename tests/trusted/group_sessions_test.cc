// Group sessions: one sender, one order, n receivers; equivocation-free multicast.
#include <gtest/gtest.h>

#include "trusted/kernel_support.h"

namespace leat::trusted {
namespace {

constexpr std::uint32_t kGroup = 200;
constexpr std::uint32_t kPairSession = 201;
constexpr Statement kMulticast{.session = kGroup};

// Device 1 sends to devices 2 and 3, and has a pair session with 2 as well.
class Groups : public testing::Test {
 protected:
  Groups() : sender_(1, kEpoch), first_(2, kEpoch), second_(3, kEpoch) {
    const Key group_key = session_key(1);
    const Key pair_key = session_key(2);
    sender_.provision({.id = kGroup, .role = Role::kGroupSender, .key = group_key});
    for (LocalKernel* receiver : {&first_, &second_})
      receiver->provision(
          {.id = kGroup, .role = Role::kGroupReceiver, .peer = 1, .key = group_key});
    sender_.provision({.id = kPairSession, .peer = 2, .key = pair_key});
    first_.provision({.id = kPairSession, .peer = 1, .key = pair_key});
    for (LocalKernel* kernel : {&sender_, &first_, &second_}) kernel->enable();
  }

  LocalKernel sender_, first_, second_;
};

TEST_F(Groups, one_record_is_accepted_by_every_receiver) {
  for (int i = 0; i < 3; ++i) {
    const Record record = attested(sender_, "to all", kMulticast);
    EXPECT_EQ(first_.verify(record, Kind::kSend), Verdict::kOk);
    EXPECT_EQ(second_.verify(record, Kind::kSend), Verdict::kOk);
  }
}

TEST_F(Groups, a_sender_that_tells_two_stories_blocks_who_misses_the_first) {
  const Record to_first = attested(sender_, "yes", kMulticast);
  const Record to_second = attested(sender_, "no", kMulticast);
  EXPECT_EQ(read_header(to_second)->counter, read_header(to_first)->counter + 1);
  EXPECT_EQ(first_.verify(to_first, Kind::kSend), Verdict::kOk);
  EXPECT_EQ(second_.verify(to_second, Kind::kSend), Verdict::kCounter);
}

TEST_F(Groups, other_bytes_under_the_same_counter_are_refused) {
  const Record record = attested(sender_, "yes", kMulticast);
  Record other = record;
  other[kHeaderBytes] = std::byte{'Y'};
  EXPECT_EQ(first_.verify(record, Kind::kSend), Verdict::kOk);
  EXPECT_EQ(second_.verify(other, Kind::kSend), Verdict::kMac);
}

TEST_F(Groups, only_the_sender_attests) {
  Proof proof;
  EXPECT_EQ(first_.attest(kMulticast, {}, proof), Verdict::kRole);
  EXPECT_EQ(second_.attest(kMulticast, {}, proof), Verdict::kRole);
}

TEST_F(Groups, a_record_in_another_members_name_is_refused) {
  Record record = attested(sender_, "from 1", kMulticast);
  record[12] = std::byte{3};
  EXPECT_EQ(first_.verify(record, Kind::kSend), Verdict::kDevice);
  EXPECT_EQ(second_.verify(record, Kind::kSend), Verdict::kDevice);
  EXPECT_EQ(second_.verify_stateless(record, Kind::kSend), Verdict::kDevice);
}

TEST_F(Groups, protocol_messages_on_a_pair_session_of_the_sender_are_refused) {
  const Record aside = attested(sender_, "only for you", {.session = kPairSession});
  EXPECT_EQ(first_.verify(aside, Kind::kSend), Verdict::kEquivocation);
  EXPECT_EQ(first_.counters(kPairSession, 0)->next_received, 0U);
}

TEST_F(Groups, answers_on_that_pair_session_pass) {
  const Record receipt =
      attested(sender_, "receipt", {.session = kPairSession, .kind = Kind::kReply});
  EXPECT_EQ(first_.verify(receipt, Kind::kReply), Verdict::kOk);
  const Record back = attested(first_, "I may", {.session = kPairSession});
  EXPECT_EQ(sender_.verify(back, Kind::kSend), Verdict::kOk);
}

TEST_F(Groups, who_was_skipped_catches_up_from_what_a_peer_forwards) {
  std::vector<Record> kept;
  for (const char* text : {"1", "2", "3"}) {
    kept.push_back(attested(sender_, text, kMulticast));
    EXPECT_EQ(first_.verify(kept.back(), Kind::kSend), Verdict::kOk);
  }
  const Record fourth = attested(sender_, "4", kMulticast);
  EXPECT_EQ(second_.verify(fourth, Kind::kSend), Verdict::kCounter);
  EXPECT_EQ(second_.counters(kGroup, 0)->next_received, 0U);  // what to ask a peer for
  for (const Record& record : kept) EXPECT_EQ(second_.verify(record, Kind::kSend), Verdict::kOk);
  EXPECT_EQ(second_.verify(fourth, Kind::kSend), Verdict::kOk);
}

TEST_F(Groups, a_forwarder_that_alters_or_reorders_is_refused) {
  const Record first = attested(sender_, "1", kMulticast);
  const Record second = attested(sender_, "2", kMulticast);
  Record altered = first;
  altered[kHeaderBytes] = std::byte{'9'};
  EXPECT_EQ(second_.verify(second, Kind::kSend), Verdict::kCounter);
  EXPECT_EQ(second_.verify(altered, Kind::kSend), Verdict::kMac);
  EXPECT_EQ(second_.verify(first, Kind::kSend), Verdict::kOk);
  EXPECT_EQ(second_.verify(second, Kind::kSend), Verdict::kOk);
}

}  // namespace
}  // namespace leat::trusted
