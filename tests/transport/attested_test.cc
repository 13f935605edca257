// What transports attested+X add: refusals, ends that are attested, settings, records that are
// kept. tests/trusted/README.md numbers the cases.
#include "transport/attested/attested.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "leat/attest/recipe.h"
#include "leat/channel.h"
#include "support/channel_side.h"
#include "support/devices.h"
#include "support/errors.h"
#include "support/scratch.h"
#include "support/wire_transport.h"
#include "transport/decorated.h"

namespace leat::detail {
namespace {

using trusted::Algorithm;
using trusted::kHeaderBytes;
using trusted::kRecordOverheadBytes;

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

trusted::detail::ChannelSession session_of(Algorithm algorithm, bool active) {
  return {trusted::detail::make_local_home(channel_key_file(), algorithm), algorithm, active};
}

class Attested : public testing::TestWithParam<Algorithm> {
 protected:
  Attested() : sender_(make(true)), receiver_(make(false)) {
    const auto ours = sender_.setup();
    const auto theirs = receiver_.setup();
    sender_.start(theirs);
    receiver_.start(ours);
  }

  AttestedTransport make(bool active) {
    return {std::make_unique<WireTransport>(active ? there_ : back_, active ? back_ : there_),
            session_of(GetParam(), active)};
  }
  // The text of the next message; "nothing" or "end".
  std::string receive(Context context = 0) {
    Delivery delivery;
    switch (receiver_.try_receive(context, delivery)) {
      case ReceiveResult::kNothing:
        return "nothing";
      case ReceiveResult::kEnd:
        return "end";
      case ReceiveResult::kMessage:
        break;
    }
    std::string text(reinterpret_cast<const char*>(delivery.data), delivery.bytes);
    receiver_.release(delivery);
    return text;
  }
  std::uint64_t refused() const {
    Stats stats;
    receiver_.add_stats(stats);
    return stats.refused_records;
  }

  Wire there_, back_;
  AttestedTransport sender_, receiver_;
};

INSTANTIATE_TEST_SUITE_P(Algorithms, Attested,
                         testing::Values(Algorithm::kHmacSha256, Algorithm::kAes256Gmac),
                         [](const auto& tested) {
                           return tested.param == Algorithm::kHmacSha256 ? "sha256" : "gmac";
                         });

TEST_P(Attested, what_does_not_verify_is_never_handed_out) {
  ASSERT_TRUE(sent(sender_.try_send(as_bytes("good"), 0)));
  const Wire::Item good = there_.items.front();
  there_.items.clear();
  for (std::size_t i = 0; i < good.bytes.size(); ++i) {
    there_.items.push_back(good);
    there_.items.back().bytes[i] ^= std::byte{1};
  }
  EXPECT_EQ(receive(), "nothing");
  EXPECT_EQ(refused(), good.bytes.size());
  there_.items.push_back(good);
  EXPECT_EQ(receive(), "good");
}

TEST_P(Attested, messages_that_are_no_records_are_refused) {
  for (const std::size_t bytes : {0U, 1U, 127U, 128U, 4000U})
    there_.items.push_back({Bytes(bytes, std::byte{'x'}), 0});
  EXPECT_EQ(receive(), "nothing");
  EXPECT_EQ(refused(), 5U);
}

TEST_P(Attested, replayed_swapped_and_half_written_records_are_refused) {
  for (const char* text : {"one", "two", "six"})
    ASSERT_TRUE(sent(sender_.try_send(as_bytes(text), 0)));
  std::vector<Wire::Item> sent(there_.items.begin(), there_.items.end());
  Wire::Item torn = sent[1];  // its first half, and the second half of another
  std::copy(sent[2].bytes.begin() + 60, sent[2].bytes.end(), torn.bytes.begin() + 60);
  there_.items = {sent[0], sent[0], torn, sent[1], sent[0], sent[2]};
  EXPECT_EQ(receive(), "one");
  EXPECT_EQ(receive(), "two");
  EXPECT_EQ(receive(), "six");
  EXPECT_EQ(refused(), 3U);
}

// A record that was changed or removed on its way never comes again.
TEST_P(Attested, a_message_that_is_missing_is_told_once_a_later_one_comes) {
  for (const char* text : {"one", "two", "six"})
    ASSERT_TRUE(sent(sender_.try_send(as_bytes(text), 0)));
  ASSERT_TRUE(sent(sender_.try_send(as_bytes("beside"), 3)));
  there_.items[1].bytes.back() ^= std::byte{1};
  const Wire::Item whole = there_.items[1];
  EXPECT_EQ(receive(), "one");
  expect_error(ErrorCode::kAuthentication, [&] { receive(); });
  there_.items.push_back(whole);
  expect_error(ErrorCode::kAuthentication, [&] { receive(); });
  EXPECT_EQ(receive(3), "beside");
  EXPECT_EQ(refused(), 2U);
}

TEST_P(Attested, an_end_behind_a_missing_message_is_no_end) {
  ASSERT_TRUE(sent(sender_.try_send(as_bytes("lost"), 0)));
  ASSERT_TRUE(sender_.try_end());
  there_.items.pop_front();
  expect_error(ErrorCode::kAuthentication, [&] { receive(); });
}

TEST_P(Attested, a_record_moved_to_another_context_is_refused) {
  ASSERT_TRUE(sent(sender_.try_send(as_bytes("for context 3"), 3)));
  Wire::Item item = there_.items.front();
  there_.items.clear();
  there_.items.push_back({item.bytes, 5});
  EXPECT_EQ(receive(5), "nothing");
  there_.items.push_back(item);
  EXPECT_EQ(receive(3), "for context 3");
}

TEST_P(Attested, a_reflected_record_is_refused) {
  ASSERT_TRUE(sent(sender_.try_send(as_bytes("mine"), 0)));
  back_.items.push_back(there_.items.front());
  Delivery delivery;
  EXPECT_EQ(sender_.try_receive(0, delivery), ReceiveResult::kNothing);
}

TEST_P(Attested, contexts_do_not_wait_for_each_other) {
  ASSERT_TRUE(sent(sender_.try_send(as_bytes("slow"), 1)));
  ASSERT_TRUE(sent(sender_.try_send(as_bytes("fast"), 2)));
  EXPECT_EQ(receive(2), "fast");
  EXPECT_EQ(receive(1), "slow");
}

// What a peer writes into its memory after the record was taken changes nothing:
// WireTransport::release() overwrites it.
TEST_P(Attested, what_is_handed_out_is_the_copy_that_was_verified) {
  ASSERT_TRUE(sent(sender_.try_send(as_bytes("as verified"), 0)));
  Delivery first;
  ASSERT_EQ(receiver_.try_receive(0, first), ReceiveResult::kMessage);
  ASSERT_TRUE(sent(sender_.try_send(as_bytes("a later one"), 0)));
  EXPECT_EQ(receive(), "a later one");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(first.data), first.bytes), "as verified");
  receiver_.release(first);
}

TEST_P(Attested, without_room_nothing_is_attested) {
  there_.full = true;
  EXPECT_FALSE(sent(sender_.try_send(as_bytes("dropped"), 0)));
  there_.full = false;
  EXPECT_TRUE(sent(sender_.try_send(as_bytes("another"), 0)));
  EXPECT_EQ(receive(), "another");
}

TEST_P(Attested, what_could_not_leave_leaves_as_it_was_attested_and_nothing_else_does) {
  there_.refuses_commit = true;
  EXPECT_FALSE(sent(sender_.try_send(as_bytes("first"), 0)));
  EXPECT_FALSE(sent(sender_.try_send(as_bytes("first"), 0)));
  EXPECT_THAT(
      error_of(ErrorCode::kInvalidArgument, [&] { (void)sender_.try_send(as_bytes("other"), 0); }),
      testing::HasSubstr("another message"));
  EXPECT_FALSE(sent(sender_.try_send(as_bytes("elsewhere"), 1)));
  there_.refuses_commit = false;
  EXPECT_TRUE(sent(sender_.try_send(as_bytes("first"), 0)));
  EXPECT_TRUE(sent(sender_.try_send(as_bytes("second"), 0)));
  EXPECT_EQ(trusted::read_header(there_.items[0].bytes)->counter, 0U);
  EXPECT_EQ(trusted::read_header(there_.items[1].bytes)->counter, 1U);
  EXPECT_EQ(receive(), "first");
  EXPECT_EQ(receive(), "second");
}

TEST_P(Attested, what_has_left_in_part_leaves_whole_and_lets_other_contexts_pass) {
  there_.takes_part = true;
  EXPECT_FALSE(sent(sender_.try_send(as_bytes("first"), 0)));
  EXPECT_TRUE(sent(sender_.try_send(as_bytes("elsewhere"), 1)));
  EXPECT_FALSE(sent(sender_.try_send(as_bytes("first"), 0)));
  EXPECT_THAT(
      error_of(ErrorCode::kInvalidArgument, [&] { (void)sender_.try_send(as_bytes("other"), 0); }),
      testing::HasSubstr("another message"));
  there_.takes_part = false;
  EXPECT_TRUE(sent(sender_.try_send(as_bytes("first"), 0)));
  EXPECT_TRUE(sent(sender_.try_send(as_bytes("second"), 0)));
  EXPECT_EQ(receive(), "first");
  EXPECT_EQ(receive(), "second");
  EXPECT_EQ(there_.items.front().context, 1U);
}

TEST_P(Attested, large_messages_wait_for_room_as_one_record) {
  const std::string large(100'000, 'L');
  there_.full = true;
  EXPECT_FALSE(sent(sender_.try_send(as_bytes(large), 0)));
  there_.full = false;
  EXPECT_TRUE(sent(sender_.try_send(as_bytes(large), 0)));
  EXPECT_EQ(there_.items.size(), 1U);
  EXPECT_EQ(receive(), large);
}

TEST_P(Attested, an_end_that_is_attested_in_every_context_is_one) {
  ASSERT_TRUE(sent(sender_.try_send(as_bytes("last"), 4)));
  ASSERT_TRUE(sender_.try_end());
  EXPECT_EQ(receive(4), "last");
  for (Context context = 0; context < kContextCount; ++context) EXPECT_EQ(receive(context), "end");
}

TEST_P(Attested, an_end_put_in_the_senders_mouth_is_an_error) {
  ASSERT_TRUE(sent(sender_.try_send(as_bytes("there was more"), 0)));
  there_.items.clear();
  there_.ended = true;
  EXPECT_THAT(error_of(ErrorCode::kAuthentication, [&] { receive(); }),
              testing::HasSubstr("not attested"));
}

TEST_P(Attested, an_end_after_a_removed_message_is_an_error) {
  ASSERT_TRUE(sent(sender_.try_send(as_bytes("removed"), 0)));
  there_.items.clear();
  ASSERT_TRUE(sender_.try_end());
  EXPECT_EQ(error_of(ErrorCode::kAuthentication, [&] { receive(); }).empty(), false);
}

TEST_P(Attested, offers_that_make_no_sense_are_refused) {
  AttestedTransport side = make(false);
  const auto good = make(true).setup();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{63}}) {
    EXPECT_THAT(
        error_of(ErrorCode::kProtocol, [&] { make(false).start(std::span(good).first(bytes)); }),
        testing::HasSubstr("no sense"));
  }
  Bytes bad = good;
  bad[0] ^= std::byte{1};
  EXPECT_FALSE(error_of(ErrorCode::kProtocol, [&] { side.start(bad); }).empty());
  bad = good;
  bad[63] = std::byte{1};
  EXPECT_FALSE(error_of(ErrorCode::kProtocol, [&] { side.start(bad); }).empty());
  EXPECT_FALSE(error_of(ErrorCode::kAuthentication, [&] { side.start(side.setup()); }).empty());
}

// Connections made with one key file have keys of their own: what was recorded from one is worth
// nothing in another.
TEST_P(Attested, records_of_another_connection_are_refused) {
  ASSERT_TRUE(sent(sender_.try_send(as_bytes("recorded"), 0)));
  const Wire::Item recorded = there_.items.front();
  there_.items.clear();
  AttestedTransport sender = make(true), receiver = make(false);
  sender.start(receiver.setup());
  receiver.start(sender.setup());
  there_.items.push_back(recorded);
  Delivery delivery;
  EXPECT_EQ(receiver.try_receive(0, delivery), ReceiveResult::kNothing);
  Stats stats;
  receiver.add_stats(stats);
  EXPECT_EQ(stats.refused_records, 1U);
}

// --- over real transports

class AttestedChannels : public DecoratedChannels {};

// All over every device, but for attested+ring on shm, on which every suite of channels runs.
std::vector<ChannelKind> attested_kinds() {
  std::vector<ChannelKind> kinds;
  for (const std::string& device : test_devices()) {
    if (device != "shm") kinds.push_back({"attested+ring", device});
    for (const char* transport : {"attested+planned", "attested+batched", "attested+chunked"})
      kinds.push_back({transport, device});
  }
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Inner, AttestedChannels,
                         testing::Combine(testing::ValuesIn(attested_kinds()),
                                          testing::Values(PeerMode::kThreads,
                                                          PeerMode::kProcesses)),
                         channel_test_name);

TEST_P(AttestedChannels, messages_of_all_sizes_arrive_and_the_end_is_seen) {
  expect_all_sizes_and_the_end();
}

class AttestedSettings : public testing::Test {
 protected:
  // What connecting says, with these options on the two sides.
  static std::string outcome(const std::function<void(Options&)>& listener_options,
                             const std::function<void(Options&)>& client_options) {
    std::string said;
    run_pair(
        PeerMode::kThreads,
        [&](Peer& peer) {
          Options options = channel_options({"attested+ring", "shm"});
          options.timeout = std::chrono::milliseconds(100);
          listener_options(options);
          Listener listener("127.0.0.1:0", options);
          peer.tell(listener.address());
          do {
            EXPECT_THROW((void)listener.accept(), Error);
          } while (!peer.has_word());
        },
        [&](Peer& peer) {
          Options options = channel_options({"attested+ring", "shm"});
          client_options(options);
          try {
            Channel::connect(peer.hear(), options);
          } catch (const Error& error) {
            said = error.what();
          }
          peer.tell("done");
        });
    return said;
  }
};

TEST_F(AttestedSettings, a_missing_key_is_explained_to_the_peer) {
  EXPECT_THAT(outcome([](Options& o) { o.attest_key_file = ""; }, [](Options&) {}),
              testing::HasSubstr("attest_key_file"));
}

TEST_F(AttestedSettings, different_algorithms_are_explained) {
  using trusted::detail::ChannelSession;
  ChannelSession ours = session_of(Algorithm::kHmacSha256, true);
  const ChannelSession theirs = session_of(Algorithm::kAes256Gmac, false);
  EXPECT_THAT(error_of(ErrorCode::kUnavailable, [&] { ours.begin(theirs.offer()); }),
              testing::HasSubstr("attest_algorithm"));
}

TEST_F(AttestedSettings, a_key_file_must_hold_a_long_key) {
  const ScratchFolder folder;
  const auto refused = [&](const std::string& text) {
    const std::string path = folder.write("key", text);
    return error_of(ErrorCode::kInvalidArgument,
                    [&] { trusted::detail::make_local_home(path, Algorithm::kHmacSha256); });
  };
  EXPECT_THAT(refused(std::string(62, 'a')), testing::HasSubstr("at least 64"));
  EXPECT_THAT(refused(std::string(130, 'a')), testing::HasSubstr("at most 128"));
  EXPECT_THAT(refused("key"), testing::HasSubstr("hexadecimal"));
}

TEST(Records, a_message_of_another_transport_has_none_also_when_its_channel_is_gone) {
  const Options options = channel_options({"ring", "shm"});
  Listener listener("127.0.0.1:0", options);
  std::thread client([&] { Channel::connect(listener.address(), options).send("small"); });
  Message message = listener.accept().receive();
  client.join();
  EXPECT_EQ(message.text(), "small");
  EXPECT_TRUE(trusted::record_of(message).empty());
}

}  // namespace
}  // namespace leat::detail
