// Who is let in by an introduction, and which messages count after it.
#include "trusted/parts/introduction.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

#include "trusted/parties.h"

namespace leat::trusted {
namespace {

using namespace detail;

constexpr PartyId kConnecting = 1, kAccepting = 2, kOther = 3;

// Parties that know each other, and what they say.
class IntroductionTest : public testing::Test {
 protected:
  Self self(PartyId id) const { return {directory_, keys_.at(id - 1), id, kSystemEpoch}; }

  // What two sides say in turn.
  struct Said {
    Bytes challenge, attach, attached;
  };
  // Until one refuses, or both are done, which is returned.
  static bool talk(Introduction& connecting, Introduction& accepting, Said& said) {
    said.challenge = accepting.opening().value();
    if (!connecting.take(said.challenge)) return false;
    said.attach = connecting.answer().value();
    if (!accepting.take(said.attach)) return false;
    said.attached = accepting.answer().value();
    return connecting.take(said.attached) && connecting.is_done() && accepting.is_done();
  }

  std::vector<SigningKey> keys_{3};
  const Directory directory_{{{.id = kConnecting, .key = keys_[0].public_key(), .address = {}},
                              {.id = kAccepting, .key = keys_[1].public_key(), .address = {}},
                              {.id = kOther, .key = keys_[2].public_key(), .address = {}}}};
};

Bytes message_of(std::size_t bytes) { return Bytes(bytes, static_cast<std::byte>(bytes)); }

TEST_F(IntroductionTest, both_prove_who_they_are_and_vouch_for_their_messages) {
  Introduction connecting(self(kConnecting), kAccepting), accepting(self(kAccepting), 0);
  EXPECT_FALSE(connecting.opening());
  Said said;
  ASSERT_TRUE(talk(connecting, accepting, said));
  EXPECT_EQ(connecting.peer(), kAccepting);
  EXPECT_EQ(accepting.peer(), kConnecting);
  auto a = connecting.take_taggers(), b = accepting.take_taggers();
  for (const std::size_t bytes : {0, 1, 15, 16, 17, 1000, 100'000})
    for (auto* way : {&a, &b}) {
      Bytes message = message_of(bytes);
      way->mine.append(message);
      EXPECT_EQ(message.size(), bytes + Tagger::kTagBytes);
      ASSERT_TRUE((way == &a ? b : a).peers.remove(message));
      EXPECT_EQ(message, message_of(bytes));
    }
}

TEST_F(IntroductionTest, what_was_said_before_opens_nothing) {
  Introduction connecting(self(kConnecting), kAccepting), accepting(self(kAccepting), 0);
  Said said;
  ASSERT_TRUE(talk(connecting, accepting, said));

  Introduction later(self(kAccepting), 0);
  EXPECT_FALSE(later.take(said.attach));
  Introduction again(self(kConnecting), kAccepting);
  ASSERT_TRUE(again.take(said.challenge));  // anybody may say that,
  EXPECT_FALSE(again.take(said.attached));  // but not prove anything by it
}

TEST_F(IntroductionTest, a_proof_is_for_one_receiver_one_epoch_and_one_side) {
  Said said;
  const auto refused = [&](Introduction connecting, Introduction accepting) {
    return !talk(connecting, accepting, said) && !connecting.is_done();
  };
  Self other_epoch{directory_, keys_[0], kConnecting, kSystemEpoch + 1};
  Self wrong_key{directory_, keys_[2], kConnecting, kSystemEpoch};
  Self unknown{directory_, keys_[2], 99, kSystemEpoch};
  for (const Self& liar : {other_epoch, wrong_key, unknown})
    EXPECT_TRUE(refused({liar, kAccepting}, {self(kAccepting), 0}));
  // To somebody else; and somebody else answers.
  EXPECT_TRUE(refused({self(kConnecting), kOther}, {self(kAccepting), 0}));
  Self in_its_name{directory_, keys_[2], kAccepting, kSystemEpoch};
  EXPECT_TRUE(refused({self(kConnecting), kAccepting}, {in_its_name, 0}));
  // Its own words, said back to it.
  EXPECT_TRUE(refused({self(kAccepting), kAccepting}, {self(kAccepting), 0}));
  Introduction connecting(self(kConnecting), kAccepting), accepting(self(kAccepting), 0);
  ASSERT_TRUE(connecting.take(accepting.opening().value()));
  const Bytes attach = connecting.answer().value();
  EXPECT_FALSE(connecting.take(attach));
  EXPECT_FALSE(Introduction(self(kAccepting), 0).take(attach));
}

TEST_F(IntroductionTest, no_byte_of_it_may_be_changed_and_none_be_missing) {
  // Each message of it in turn: changed at each place, cut off at each length.
  const auto refuses = [&](int which, const auto& change) {
    Introduction connecting(self(kConnecting), kAccepting), accepting(self(kAccepting), 0);
    Bytes challenge = accepting.opening().value();
    if (which == 0) change(challenge);
    if (!connecting.take(challenge)) return true;
    Bytes attach = connecting.answer().value();
    if (which == 1) change(attach);
    if (!accepting.take(attach)) return true;
    Bytes attached = accepting.answer().value();
    if (which == 2) change(attached);
    return !connecting.take(attached);
  };
  constexpr std::size_t kChallengeBytes = 33, kProofBytes = 28 + 2 * 34 + 64;
  for (int which = 0; which < 3; ++which) {
    const std::size_t size = which == 0 ? kChallengeBytes : kProofBytes;
    for (std::size_t at = 0; at < size; ++at) {
      EXPECT_TRUE(refuses(which,
                          [&](Bytes& message) {
                            ASSERT_EQ(message.size(), size);
                            message[at] ^= std::byte{0x10};
                          }))
          << which << " changed at " << at;
      EXPECT_TRUE(refuses(which, [&](Bytes& message) { message.resize(at); }))
          << which << " cut off at " << at;
    }
    EXPECT_TRUE(refuses(which, [](Bytes& message) { message.push_back({}); })) << which;
  }
}

// A key of zeros gives a secret that everybody knows.
TEST_F(IntroductionTest, a_key_of_small_order_is_refused) {
  Introduction accepting(self(kAccepting), 0);
  const Bytes opening = accepting.opening().value();
  Bytes keys;
  Items::append(keys, View(opening).subspan(1));
  Items::append(keys, Bytes(32));
  EXPECT_FALSE(accepting.take(write_signed(keys_[0], {.type = MessageType::kAttach,
                                                      .sender = kConnecting,
                                                      .target = kAccepting,
                                                      .epoch = kSystemEpoch,
                                                      .items = *Items::read(keys, 2)})));
  EXPECT_FALSE(accepting.is_done());
}

// The two ends of one direction.
struct Way {
  Tagger sender, receiver;
  static Way with(std::byte seed) {
    std::array<std::byte, Tagger::kKeyBytes> key;
    key.fill(seed);
    return {Tagger(key), Tagger(key)};
  }
};

TEST(Tagger, only_the_peers_next_message_counts) {
  const auto counts = [](const auto& change) {
    Way way = Way::with(std::byte{1});
    std::vector<Bytes> sent(3, message_of(40));
    for (Bytes& message : sent) way.sender.append(message);
    change(sent);
    std::size_t count = 0;
    while (count < sent.size() && way.receiver.remove(sent[count])) ++count;
    return count;
  };
  EXPECT_EQ(counts([](auto&) {}), 3U);
  EXPECT_EQ(counts([](auto& sent) { sent[1] = sent[0]; }), 1U) << "said again";
  EXPECT_EQ(counts([](auto& sent) { sent.erase(sent.begin()); }), 0U) << "left out";
  EXPECT_EQ(counts([](auto& sent) { std::swap(sent[1], sent[2]); }), 1U) << "in another order";
  EXPECT_EQ(counts([](auto& sent) { sent[1].clear(); }), 1U);
  EXPECT_EQ(counts([](auto& sent) { sent[1].pop_back(); }), 1U);
  EXPECT_EQ(counts([](auto& sent) { sent[1].resize(Tagger::kTagBytes - 1); }), 1U);
  for (std::size_t at = 0; at < 40 + Tagger::kTagBytes; ++at)
    EXPECT_EQ(counts([at](auto& sent) { sent[1][at] ^= std::byte{1}; }), 1U) << at;
  Bytes foreign = message_of(40);
  Way::with(std::byte{2}).sender.append(foreign);
  EXPECT_FALSE(Way::with(std::byte{1}).receiver.remove(foreign));
}

}  // namespace
}  // namespace leat::trusted
