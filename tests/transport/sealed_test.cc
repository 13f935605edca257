// What transports sealed+X add: secrecy, refusals that end the connection, ends that are sealed,
// keys that TLS agreed on.
#include "transport/sealed/sealed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "leat/channel.h"
#include "support/channel_side.h"
#include "support/devices.h"
#include "support/errors.h"
#include "support/keyed_stream.h"
#include "support/link_pair.h"
#include "support/scratch.h"
#include "support/wire_transport.h"
#include "transport/decorated.h"
#include "transport/table.h"

namespace leat::detail {
namespace {

std::span<const std::byte> sealed_text(std::string_view text) {
  return std::as_bytes(std::span(text));
}

class Sealed : public testing::TestWithParam<SealCipher> {
 protected:
  Sealed() : sender_(make(true, sender_stream_)), receiver_(make(false, receiver_stream_)) {
    connect(*sender_, *receiver_);
  }

  std::unique_ptr<SealedTransport> make(bool active, Stream& stream,
                                        const std::string& greetings = "hello, answer",
                                        const KeyLimits& limits = {.records = 3}) {
    const auto said = sealed_text(greetings);
    return std::make_unique<SealedTransport>(
        std::make_unique<WireTransport>(active ? there_ : back_, active ? back_ : there_), stream,
        Bytes(said.begin(), said.end()), SealOffer{.wish = GetParam(), .limits = limits}, active);
  }
  static void connect(SealedTransport& first, SealedTransport& second) {
    const auto firsts = first.setup();
    const auto seconds = second.setup();
    first.start(seconds);
    second.start(firsts);
  }
  void send(std::string_view text, Context context = 0) {
    ASSERT_TRUE(sent(sender_->try_send(sealed_text(text), context)));
  }
  // The text of the next message; "nothing" or "end".
  static std::string receive(SealedTransport& from, Context context = 0) {
    Delivery delivery;
    switch (from.try_receive(context, delivery)) {
      case ReceiveResult::kNothing:
        return "nothing";
      case ReceiveResult::kEnd:
        return "end";
      case ReceiveResult::kMessage:
        break;
    }
    const std::byte* bytes = delivery.data != nullptr ? delivery.data : delivery.small.data();
    std::string text(reinterpret_cast<const char*>(bytes), delivery.bytes);
    if (delivery.must_release) from.release(delivery);
    return text;
  }
  std::string receive(Context context = 0) { return receive(*receiver_, context); }
  // The receiver gets nothing more, in no context, and its sending side says the same.
  void expect_over(std::uint64_t refused = 1) {
    for (const Context context : {0U, 0U, 7U})
      expect_error(ErrorCode::kAuthentication, [&] { receive(context); });
    expect_error(ErrorCode::kAuthentication,
                 [&] { static_cast<void>(receiver_->try_send(sealed_text("more"), 0)); });
    expect_error(ErrorCode::kAuthentication, [&] { receiver_->try_end(); });
    EXPECT_TRUE(receiver_stream_.aborted);
    Stats stats;
    receiver_->add_stats(stats);
    EXPECT_EQ(stats.refused_records, refused);
  }

  Wire there_, back_;
  KeyedStream sender_stream_, receiver_stream_;
  std::unique_ptr<SealedTransport> sender_, receiver_;
};

INSTANTIATE_TEST_SUITE_P(Ciphers, Sealed,
                         testing::Values(SealCipher::kAes256Gcm, SealCipher::kAes128Gcm,
                                         SealCipher::kChaCha20Poly1305),
                         [](const auto& tested) {
                           std::string name(to_string(tested.param));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(Sealed, MessagesOfAllSizesComeInTheirOrderUnderManyKeys) {
  for (const std::size_t bytes : {0U, 1U, 48U, 49U, 4000U, 5000U, 100'000U}) {
    const std::string text(bytes, 'm');
    send(text);
    send(text, 15);
    EXPECT_EQ(receive(), text);
    EXPECT_EQ(receive(15), text);
  }
  EXPECT_EQ(receive(), "nothing");
}

TEST_P(Sealed, NothingOfAMessageIsSeen) {
  const std::string text(5000, 'P');
  send(text);
  send(text.substr(0, 64));
  const Bytes run(8, std::byte{'P'});
  for (const Wire::Item& item : there_.items)
    EXPECT_EQ(std::search(item.bytes.begin(), item.bytes.end(), run.begin(), run.end()),
              item.bytes.end());
}

TEST_P(Sealed, AnyBitFlippedEndsTheConnection) {
  send("good");
  const Wire::Item good = there_.items.front();
  for (std::size_t bit = 0; bit < 8 * good.bytes.size(); ++bit) {
    there_.items.clear();
    receiver_ = make(false, receiver_stream_);
    sender_ = make(true, sender_stream_);
    connect(*sender_, *receiver_);
    send("good");
    there_.items.front().bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    expect_error(ErrorCode::kAuthentication, [&] { receive(); });
  }
  // What is good itself comes too late.
  there_.items = {good};
  expect_over();
}

TEST_P(Sealed, ARecordThatIsNotTheNextOneEndsTheConnection) {
  using Change = std::function<void(std::deque<Wire::Item>&)>;
  const Change changes[] = {
      [](auto& items) { std::swap(items[1], items[2]); },
      [](auto& items) { items.insert(items.begin() + 1, items[0]); },
      [](auto& items) { items.erase(items.begin() + 1); },
      [](auto& items) { items[1].bytes.pop_back(); },
      [](auto& items) { items[1].bytes.clear(); },
      [](auto& items) { items[1].bytes.resize(kSealTagBytes); },
      [](auto& items) { items[1].bytes.resize(kSealTagBytes - 1); },
      [](auto& items) { items[1].bytes = items[3].bytes; },
  };
  for (const Change& change : changes) {
    receiver_ = make(false, receiver_stream_);
    sender_ = make(true, sender_stream_);
    receiver_stream_.aborted = false;
    connect(*sender_, *receiver_);
    there_.items.clear();
    for (const char* text : {"one", "two", "six"}) send(text);
    send("two", 4);
    change(there_.items);
    EXPECT_EQ(receive(), "one");
    expect_error(ErrorCode::kAuthentication, [&] { receive(); });
    expect_over();
  }
}

// Both sides have given up the key of the first three by then.
TEST_P(Sealed, ARecordOfAnEarlierKeyEndsTheConnection) {
  send("again");
  const Wire::Item recorded = there_.items.front();
  for (int i = 1; i < 3; ++i) send("again");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(receive(), "again");
  send("again");
  there_.items.front() = recorded;
  expect_error(ErrorCode::kAuthentication, [&] { receive(); });
  expect_over();
}

// What a peer may offer; the smaller limits hold for both directions.
TEST_P(Sealed, SidesThatOfferTheLeastAndTheMostChangeKeysAlike) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const KeyLimits offers[] = {{}, {.records = 1, .bytes = 1}, {.records = kMost, .bytes = kMost}};
  for (const KeyLimits& senders : offers) {
    for (const KeyLimits& receivers : offers) {
      sender_ = make(true, sender_stream_, "hello, answer", senders);
      receiver_ = make(false, receiver_stream_, "hello, answer", receivers);
      connect(*sender_, *receiver_);
      for (const std::size_t bytes : {0U, 1U, 2U, 100U, 5000U, 0U}) {
        const std::string text(bytes, 'b');
        send(text);
        EXPECT_EQ(receive(), text);
        ASSERT_TRUE(sent(receiver_->try_send(sealed_text(text), 0)));
        EXPECT_EQ(receive(*sender_), text);
      }
    }
  }
}

TEST_P(Sealed, ARecordOfAnotherConnectionOrDirectionEndsTheConnection) {
  send("recorded");
  const Wire::Item recorded = there_.items.front();
  there_.items.clear();
  back_.items.push_back(recorded);
  expect_error(ErrorCode::kAuthentication, [&] { receive(*sender_); });
  sender_ = make(true, sender_stream_, "hello of later");
  receiver_ = make(false, receiver_stream_, "hello of later");
  connect(*sender_, *receiver_);
  there_.items.push_back(recorded);
  expect_error(ErrorCode::kAuthentication, [&] { receive(); });
  expect_over();
}

// Inside TLS nobody can change them; if somebody did, nothing would open.
TEST_P(Sealed, SidesThatHeardDifferentGreetingsOrSetupsShareNoKey) {
  const auto expect_strangers = [&](SealedTransport& first, SealedTransport& second) {
    there_.items.clear();
    ASSERT_TRUE(sent(first.try_send(sealed_text("secret"), 0)));
    expect_error(ErrorCode::kAuthentication, [&] { receive(second); });
  };
  sender_ = make(true, sender_stream_, "hello, answer");
  receiver_ = make(false, receiver_stream_, "hello, another answer");
  connect(*sender_, *receiver_);
  expect_strangers(*sender_, *receiver_);

  sender_ = make(true, sender_stream_);
  receiver_ = make(false, receiver_stream_);
  auto changed = sender_->setup();
  changed[6] ^= std::byte{1};  // a limit of its keys
  sender_->start(receiver_->setup());
  receiver_->start(changed);
  expect_strangers(*sender_, *receiver_);
}

TEST_P(Sealed, EndsAreSealedInEveryContext) {
  send("last", 4);
  ASSERT_TRUE(sender_->try_end());
  EXPECT_EQ(receive(4), "last");
  for (Context context = 0; context < kContextCount; ++context) EXPECT_EQ(receive(context), "end");
}

TEST_P(Sealed, AnEndPutInTheSendersMouthEndsTheConnection) {
  send("there was more");
  there_.items.clear();
  there_.ended = true;
  EXPECT_THAT(error_of(ErrorCode::kAuthentication, [&] { receive(); }),
              testing::HasSubstr("not sealed"));
  expect_over();
}

TEST_P(Sealed, AnEndBehindARemovedMessageEndsTheConnection) {
  send("removed");
  there_.items.clear();
  ASSERT_TRUE(sender_->try_end());
  expect_error(ErrorCode::kAuthentication, [&] { receive(); });
}

TEST_P(Sealed, AMessageBehindTheEndEndsTheConnection) {
  ASSERT_TRUE(sender_->try_end());
  const Wire::Item end = there_.items.front();
  there_.items.push_front(end);
  expect_error(ErrorCode::kAuthentication, [&] { receive(); });
}

TEST_P(Sealed, AnEmptyMessageIsNoEnd) {
  send("");
  there_.ended = true;
  EXPECT_EQ(receive(), "");
  expect_error(ErrorCode::kAuthentication, [&] { receive(); });
}

// What a peer writes into its memory after the record was taken changes nothing:
// WireTransport::release() overwrites it.
TEST_P(Sealed, WhatIsHandedOutLiesInMemoryOfThisSide) {
  const std::string text(200, 's');
  send(text);
  Delivery first;
  ASSERT_EQ(receiver_->try_receive(0, first), ReceiveResult::kMessage);
  send(std::string(200, 't'));
  EXPECT_EQ(receive(), std::string(200, 't'));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(first.data), first.bytes), text);
  receiver_->release(first);
}

TEST_P(Sealed, WithoutRoomNothingIsSealed) {
  there_.full = true;
  EXPECT_FALSE(sent(sender_->try_send(sealed_text("dropped"), 0)));
  there_.full = false;
  send("another");
  EXPECT_EQ(receive(), "another");
}

TEST_P(Sealed, WhatCouldNotLeaveLeavesAsItWasSealedAndNothingElseDoes) {
  there_.refuses_commit = true;
  EXPECT_FALSE(sent(sender_->try_send(sealed_text("first"), 0)));
  sender_->abandon(0);
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                       [&] { static_cast<void>(sender_->try_send(sealed_text("other"), 0)); }),
              testing::HasSubstr("another message"));
  EXPECT_FALSE(sent(sender_->try_send(sealed_text("elsewhere"), 1)));
  there_.refuses_commit = false;
  send("first");
  send("second");
  EXPECT_EQ(receive(), "first");
  EXPECT_EQ(receive(), "second");
}

TEST_P(Sealed, WhatHasLeftInPartLeavesWholeAndLetsOtherContextsPass) {
  there_.takes_part = true;
  EXPECT_EQ(sender_->try_send(sealed_text("first"), 0), SendResult::kUnderWay);
  send("elsewhere", 1);
  EXPECT_EQ(sender_->try_send(sealed_text("first"), 0), SendResult::kUnderWay);
  expect_error(ErrorCode::kInvalidArgument,
               [&] { static_cast<void>(sender_->try_send(sealed_text("longer one"), 0)); });
  there_.takes_part = false;
  send("first");
  send("second");
  EXPECT_EQ(receive(), "first");
  EXPECT_EQ(receive(), "second");
  EXPECT_EQ(receive(1), "elsewhere");
}

TEST_P(Sealed, AnAbandonedMessageIsSentBeforeTheEnd) {
  there_.refuses_commit = true;
  EXPECT_FALSE(sent(sender_->try_send(sealed_text("has its number"), 2)));
  sender_->abandon(2);
  EXPECT_FALSE(sender_->try_end());
  there_.refuses_commit = false;
  EXPECT_TRUE(sender_->try_end());
  EXPECT_EQ(receive(2), "has its number");
  EXPECT_EQ(receive(2), "end");
}

TEST_P(Sealed, LargeMessagesAreOneRecord) {
  const std::string large(100'000, 'L');
  there_.full = true;
  EXPECT_FALSE(sent(sender_->try_send(sealed_text(large), 0)));
  there_.full = false;
  send(large);
  EXPECT_EQ(there_.items.size(), 1U);
  EXPECT_EQ(receive(), large);
}

TEST_P(Sealed, AReservationIsSeenByNobodyBeforeItIsCommitted) {
  const auto memory = sender_->try_reserve(100, 0);
  std::ranges::fill(memory, std::byte{'r'});
  ASSERT_TRUE(sent(sender_->try_commit(60)));
  EXPECT_EQ(there_.items.front().bytes.size(), 60 + kSealTagBytes);
  EXPECT_EQ(receive(), std::string(60, 'r'));
}

// --- over real transports

class SealedChannels : public DecoratedChannels {};

std::vector<ChannelKind> sealed_kinds() {
  std::vector<ChannelKind> kinds;
  for (const std::string& device : test_devices()) {
    if (device != "shm") kinds.push_back({"sealed+ring", device});
    for (const char* transport :
         {"sealed+planned", "sealed+batched", "sealed+confirm-each", "sealed+chunked"})
      kinds.push_back({transport, device});
  }
  kinds.push_back({"sealed+tcp", kNoDevice});
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Inner, SealedChannels,
                         testing::Combine(testing::ValuesIn(sealed_kinds()),
                                          testing::Values(PeerMode::kThreads,
                                                          PeerMode::kProcesses)),
                         channel_test_name);

TEST_P(SealedChannels, MessagesOfAllSizesArriveAndTheEndIsSeen) { expect_all_sizes_and_the_end(); }

// As users get them, who have no setting for either.
TEST(SealedLimits, OfKeysAndMessagesAreTheDocumentedOnes) {
  for (const std::size_t wanted : {kMaxSealedBytes - 1, kMaxSealedBytes, kMaxSealedBytes + 1}) {
    KeyedStream stream;
    const auto make_side = [&] {
      return SealedTransport::make(find_transport("tcp")->make, {.stream = &stream},
                                   {.max_message_bytes = wanted});
    };
    const auto side = make_side();
    const auto setup = make_side()->setup();
    const KeyLimits defaults{.records = 16'777'216, .bytes = 68'719'476'736};
    EXPECT_EQ(decode_seal_offer(std::span(setup).first(SealOffer::kBytes)).limits, defaults);
    side->start(setup);
    EXPECT_EQ(side->max_message_bytes(), std::min(wanted, kMaxSealedBytes));
  }
}

class SealedSettings : public testing::Test {
 protected:
  Settings settings(const std::string& transport, SealCipher cipher = SealCipher::kAuto) const {
    Settings made = link_settings("shm", transport);
    made.tls_psk_file = channel_key_file();
    made.sealed_cipher = cipher;
    return made;
  }
};

TEST_F(SealedSettings, WithoutTlsTheErrorSaysHowToSetAKey) {
  const Settings in_clear = link_settings("shm", "sealed+ring");
  EXPECT_THAT(
      error_of(ErrorCode::kInvalidArgument, [&] { check_settings(in_clear); }),
      testing::AllOf(testing::HasSubstr("tls_psk_file"), testing::HasSubstr("openssl rand")));
}

TEST_F(SealedSettings, TheCipherIsSaidAndEitherSideMayNameIt) {
  for (const SealCipher cipher : {SealCipher::kAes128Gcm, SealCipher::kChaCha20Poly1305}) {
    for (const bool active_names : {true, false}) {
      LinkPair pair(settings("sealed+ring", active_names ? cipher : SealCipher::kAuto),
                    settings("auto", active_names ? SealCipher::kAuto : cipher));
      for (LinkOutcome* side : {&pair.active, &pair.passive}) {
        EXPECT_THAT(side->get().description, testing::HasSubstr("sealed+ring"));
        EXPECT_THAT(side->get().description, testing::HasSubstr(std::string(to_string(cipher))));
      }
    }
  }
}

TEST_F(SealedSettings, RequiredSecrecyRefusesTcpInClearAndSaysHowToSetAKey) {
  for (const bool active_requires : {true, false}) {
    Settings demanding = link_settings("auto");
    demanding.confidential = Confidential::kRequire;
    const Settings plain = link_settings("tcp");
    LinkPair pair(active_requires ? demanding : plain, active_requires ? plain : demanding);
    pair.active.expect_error(ErrorCode::kUnavailable, {"confidential = require", "tls_psk_file"});
    EXPECT_FALSE(pair.passive.link);
  }
}

TEST_F(SealedSettings, RequiredSecrecyTakesTlsOrSharedMemoryAndSaysWhich) {
  Settings demanding = settings("auto");
  demanding.confidential = Confidential::kRequire;
  LinkPair shared(demanding, settings("auto"));
  EXPECT_THAT(shared.active.get().description, testing::HasSubstr("stays in this host"));
  EXPECT_EQ(shared.active.get().transport_name, "ring");
  demanding.transport = "sealed+ring";
  LinkPair forced(demanding, settings("auto"));
  EXPECT_EQ(forced.passive.get().transport_name, "sealed+ring");
  EXPECT_THAT(forced.active.get().description,
              testing::Not(testing::HasSubstr("stays in this host")));
  demanding.transport = "auto";
  demanding.device = "tcp";
  Settings other = settings("auto");
  other.device = "tcp";
  LinkPair over_tcp(demanding, other);
  EXPECT_EQ(over_tcp.active.get().transport_name, "tcp");
  EXPECT_THAT(over_tcp.active.get().description, testing::HasSubstr("TLS"));
}

TEST_F(SealedSettings, DifferentCiphersAreExplained) {
  LinkPair pair(settings("sealed+ring", SealCipher::kAes128Gcm),
                settings("sealed+ring", SealCipher::kAes256Gcm));
  pair.active.expect_error(ErrorCode::kUnavailable, {"sealed_cipher", "AES-128-GCM"});
}

TEST_F(SealedSettings, ASideThatNamesAnotherTransportIsRefused) {
  LinkPair pair(settings("sealed+ring"), settings("ring"));
  pair.active.expect_error(ErrorCode::kUnavailable, {"sealed+ring", "ring"});
}

}  // namespace
}  // namespace leat::detail
