// Channels ask leat-attestd without a call that waits for it. A daemon that is stopped answers
// nothing, so a call that returns while it is has not waited; the daemon's patience of ten seconds
// would end in an error, not in "would block".
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "attestd/daemon.h"
#include "channel/channel_core.h"
#include "leat/c.h"
#include "leat/group.h"
#include "leat/wait.h"
#include "support/errors.h"
#include "support/wire_transport.h"
#include "transport/attested/attested.h"

namespace leat::attestd {
namespace {

using leat::detail::error_of;
using leat::detail::expect_error;
using leat::detail::hang_deadline;
using leat::detail::passed;
using testing::HasSubstr;

constexpr int kTries = 100;

void set_timeout(Channel& channel, std::chrono::milliseconds timeout) {
  leat::detail::ChannelCore::of(channel).set_send_timeout(timeout);
  leat::detail::ChannelCore::of(channel).set_receive_timeout(timeout);
}

// Until the thread that uses the channel sleeps.
void await_sleep(const Channel& channel, std::uint64_t sleeps_before) {
  for (const auto deadline = hang_deadline(); channel.stats().sleeps == sleeps_before;) {
    ASSERT_FALSE(passed(deadline)) << "nobody sleeps";
    std::this_thread::yield();
  }
}

class Asking : public testing::Test {
 protected:
  Options options(std::chrono::microseconds spin) const {
    Options options = daemon_.options();
    options.spin = spin;
    return options;
  }

  Daemon daemon_;
};

TEST_F(Asking, try_send_returns_while_the_daemon_is_stopped_and_the_message_arrives_after_all) {
  Connected both(daemon_.in_process_options(), daemon_.options());
  daemon_.stop();
  for (int i = 0; i < kTries; ++i) ASSERT_FALSE(both.connecting->try_send("asked"));
  // It has its place in the order; other contexts wait for the answer, and have begun nothing.
  for (int i = 0; i < kTries; ++i) ASSERT_FALSE(both.connecting->try_send("elsewhere", 3));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                       [&] { static_cast<void>(both.connecting->try_send("another")); }),
              HasSubstr("another message is to be sent first"));
  daemon_.go_on();
  both.connecting->send("asked");
  both.connecting->send("another elsewhere", 3);
  EXPECT_EQ(both.accepted->receive().text(), "asked");
  EXPECT_EQ(both.accepted->receive(3).text(), "another elsewhere");
}

TEST_F(Asking, a_reservation_is_committed_in_the_same_way) {
  Connected both(daemon_.in_process_options(), daemon_.options());
  const auto memory = both.connecting->reserve(5);
  std::ranges::copy(std::as_bytes(std::span("reserved", 5)), memory.begin());
  daemon_.stop();
  set_timeout(*both.connecting, std::chrono::milliseconds(1));
  for (int i = 0; i < 3; ++i)
    expect_error(ErrorCode::kTimeout, [&] { both.connecting->commit(5); });
  daemon_.go_on();
  set_timeout(*both.connecting, leat::detail::hang_limit());
  both.connecting->commit(5);
  EXPECT_EQ(both.accepted->receive().text(), "reser");
}

TEST_F(Asking, try_receive_returns_while_the_daemon_is_stopped_and_hands_out_every_context) {
  Connected both(daemon_.options(), daemon_.in_process_options());
  both.connecting->send("first", 3);
  both.connecting->send("second", 3);
  both.connecting->send("first", 5);
  daemon_.stop();
  for (int i = 0; i < kTries; ++i) {
    ASSERT_FALSE(both.accepted->try_receive(3));
    ASSERT_FALSE(both.accepted->try_receive(5));
  }
  daemon_.go_on();
  // The question that was begun is that of context 3.
  EXPECT_EQ(both.accepted->receive(5).text(), "first");
  EXPECT_EQ(both.accepted->receive(3).text(), "first");
  EXPECT_EQ(both.accepted->receive(3).text(), "second");
  EXPECT_EQ(both.accepted->stats().refused_records, 0U);
}

// A peer that has ended, or is gone: what it sent before is with the daemon, and counts.
TEST_F(Asking, what_came_before_the_peers_end_is_handed_out_when_it_is_verified) {
  for (const bool sleeps : {false, true}) {
    Connected both(options(std::chrono::microseconds(0)), daemon_.in_process_options());
    both.connecting->send("last");
    both.connecting->shutdown();
    both.connecting.reset();
    // Until the lifeline has ended, which a look does not see while there is something to verify.
    const auto& lifeline = leat::detail::ChannelCore::of(*both.accepted).connection().stream;
    for (const auto deadline = hang_deadline(); !lifeline->peer_closed();)
      ASSERT_FALSE(passed(deadline));
    daemon_.stop();
    for (int i = 0; i < kTries; ++i) ASSERT_FALSE(both.accepted->try_receive());
    std::thread goes_on;
    if (sleeps) {
      const std::uint64_t before = both.accepted->stats().sleeps;
      goes_on = std::thread([&, before] {
        await_sleep(*both.accepted, before);
        daemon_.go_on();
      });
    } else {
      daemon_.go_on();
    }
    EXPECT_EQ(both.accepted->receive().text(), "last");
    if (sleeps) goes_on.join();
    EXPECT_FALSE(both.accepted->receive());
  }
}

// A message that is being verified keeps the peer's end from the receiver, not from a sender.
TEST_F(Asking, a_sender_hears_that_the_peer_is_gone_while_a_message_is_verified) {
  Connected both(options(std::chrono::microseconds(0)), daemon_.in_process_options());
  both.connecting->send("last");
  daemon_.stop();
  for (int i = 0; i < kTries; ++i) ASSERT_FALSE(both.accepted->try_receive());
  leat::detail::ChannelCore::of(*both.connecting).reset();
  both.connecting.reset();
  expect_error(ErrorCode::kPeerDied, [&] { both.accepted->send("to nobody"); });
  daemon_.go_on();
  EXPECT_EQ(both.accepted->receive().text(), "last");
}

// What the peer's close says comes last, and is verified as everything is.
TEST_F(Asking, a_handle_hears_what_its_peers_close_says) {
  const std::string common = "?transport=attested%2Bring&device=shm&timeout_ms=60000";
  const int listening =
      leat_listen_uri(("leat://127.0.0.1:0" + common + "&attest_kernel=" + daemon_.path()).c_str());
  ASSERT_GE(listening, 0) << leat_last_error();
  sockaddr_in address{};
  socklen_t bytes = sizeof address;
  ASSERT_EQ(leat_getsockname(listening, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  const std::string peer = "leat://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + common +
                           "&attest_key_file=" + daemon_.key_file();
  int near = -1;
  std::thread connects([&] { near = leat_connect_uri(peer.c_str()); });
  const int far = leat_accept(listening, nullptr, nullptr);
  connects.join();
  ASSERT_GE(near, 0);
  ASSERT_GE(far, 0) << leat_last_error();
  EXPECT_EQ(leat_close(near), 0);
  char byte = 'x';
  EXPECT_EQ(leat_recv(far, &byte, 1, 0), 0);
  // The first is answered by a reset, as with TCP; without what the close said there would be room
  // for ever.
  const auto deadline = hang_deadline();
  while (leat_send(far, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 || errno == EAGAIN)
    ASSERT_FALSE(passed(deadline)) << "the peer's close is not heard";
  EXPECT_EQ(errno, EPIPE);
  leat_close(far);
  leat_close(listening);
}

TEST_F(Asking, a_timeout_ends_calls_that_wait_for_a_stopped_daemon) {
  Connected both(daemon_.options(), daemon_.options());
  both.connecting->send("to be verified");
  daemon_.stop();
  set_timeout(*both.accepted, std::chrono::milliseconds(1));
  EXPECT_THAT(error_of(ErrorCode::kTimeout, [&] { (void)both.accepted->receive(); }),
              HasSubstr("receive timed out"));
  EXPECT_THAT(error_of(ErrorCode::kTimeout, [&] { both.accepted->send("to be attested"); }),
              HasSubstr("send timed out"));
  expect_error(ErrorCode::kTimeout, [&] { both.accepted->shutdown(); });
  daemon_.go_on();
  set_timeout(*both.accepted, leat::detail::hang_limit());
  EXPECT_EQ(both.accepted->receive().text(), "to be verified");
  both.accepted->shutdown();
  EXPECT_EQ(both.connecting->receive().text(), "to be attested");  // whole, before the end
  EXPECT_FALSE(both.connecting->receive());
}

// One thread sleeps until the daemon has attested, one until it has verified; the daemon wakes both
// by one descriptor, of which each takes what it finds.
TEST_F(Asking, the_answers_wake_sleepers_of_both_sides) {
  Connected both(options(std::chrono::microseconds(0)), daemon_.in_process_options());
  for (std::size_t round = 0; round < leat::detail::scaled(30); ++round) {
    both.connecting->send("verified");
    daemon_.stop();
    const std::uint64_t before = both.accepted->stats().sleeps;
    std::thread receives([&] { EXPECT_EQ(both.accepted->receive().text(), "verified"); });
    await_sleep(*both.accepted, before);
    const std::uint64_t receiver_sleeps = both.accepted->stats().sleeps;
    std::thread sends([&] { both.accepted->send("attested"); });
    await_sleep(*both.accepted, receiver_sleeps);
    daemon_.go_on();
    receives.join();
    sends.join();
    EXPECT_EQ(both.connecting->receive().text(), "attested");
  }
}

TEST_F(Asking, fd_announces_what_was_verified) {
  Connected both(daemon_.options(), daemon_.in_process_options());
  pollfd readable{both.accepted->fd(), POLLIN, 0};
  EXPECT_FALSE(both.accepted->try_receive());
  both.connecting->send("verified", 0);
  daemon_.stop();
  // Without busy waiting: once the question is begun, nothing is readable before its answer.
  for (const auto deadline = hang_deadline(); poll(&readable, 1, 0) != 0;) {
    ASSERT_FALSE(both.accepted->try_receive());
    ASSERT_FALSE(passed(deadline)) << "readable without end";
  }
  daemon_.go_on();
  const auto limit =
      std::chrono::duration_cast<std::chrono::milliseconds>(leat::detail::hang_limit());
  std::optional<Message> message;
  while (!message) {
    ASSERT_EQ(poll(&readable, 1, static_cast<int>(limit.count())), 1);
    message = both.accepted->try_receive();
  }
  EXPECT_EQ(message->text(), "verified");
}

TEST_F(Asking, channels_of_one_thread_have_questions_under_way_at_once) {
  constexpr std::size_t kChannels = 4;
  std::vector<Connected> all;
  for (std::size_t i = 0; i < kChannels; ++i)
    all.emplace_back(daemon_.options(), daemon_.options());
  for (std::size_t i = 0; i < kChannels; ++i) all[i].connecting->send("there " + std::to_string(i));
  daemon_.stop();
  for (std::size_t i = 0; i < kChannels; ++i) {
    ASSERT_FALSE(all[i].accepted->try_receive());
    ASSERT_FALSE(all[i].accepted->try_send("back " + std::to_string(i)));
  }
  daemon_.go_on();
  std::vector<Channel*> channels;
  for (Connected& each : all) channels.push_back(&*each.accepted);
  std::array<bool, kChannels> received{}, sent{};
  EXPECT_EQ(wait_any(channels, WaitFor::kRoom, "the test",
                     [&] {
                       bool done = true;
                       for (std::size_t i = 0; i < kChannels; ++i) {
                         if (!received[i])
                           if (const auto message = all[i].accepted->try_receive()) {
                             EXPECT_EQ(message->text(), "there " + std::to_string(i));
                             received[i] = true;
                           }
                         sent[i] =
                             sent[i] || all[i].accepted->try_send("back " + std::to_string(i));
                         done = done && received[i] && sent[i];
                       }
                       return done;
                     }),
            nullptr);
  for (std::size_t i = 0; i < kChannels; ++i)
    EXPECT_EQ(all[i].connecting->receive().text(), "back " + std::to_string(i));
}

TEST_F(Asking, a_daemon_killed_with_questions_under_way_is_an_error_at_both_sides) {
  Connected both(options(std::chrono::microseconds(0)), daemon_.in_process_options());
  both.connecting->send("never verified");
  daemon_.stop();
  ASSERT_FALSE(both.accepted->try_send("never attested"));
  const std::uint64_t before = both.accepted->stats().sleeps;
  std::thread receives([&] {
    EXPECT_THAT(error_of(ErrorCode::kUnavailable, [&] { (void)both.accepted->receive(); }),
                HasSubstr("cannot verify a message: the attestation kernel has ended"));
  });
  await_sleep(*both.accepted, before);
  daemon_.kill();
  receives.join();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(error_of(ErrorCode::kUnavailable, [&] { both.accepted->send("never attested"); }),
                HasSubstr("cannot attest a message: the attestation kernel has ended"));
    expect_error(ErrorCode::kUnavailable, [&] { (void)both.accepted->try_receive(); });
    expect_error(ErrorCode::kUnavailable, [&] { (void)both.accepted->receive(); });
  }
  both.accepted->close();
  expect_error(ErrorCode::kPeerDied, [&] { (void)both.connecting->receive(); });
}

// Ten seconds long: no call looks for anything meanwhile, so the sleepers' own timers end it.
TEST_F(Asking, a_daemon_that_stays_stopped_is_an_error_when_patience_is_over) {
  Connected both(options(std::chrono::microseconds(0)), daemon_.in_process_options());
  set_timeout(*both.accepted, std::chrono::milliseconds(-1));
  both.connecting->send("never verified");
  daemon_.stop();
  std::thread receives([&] {
    EXPECT_THAT(error_of(ErrorCode::kUnavailable, [&] { (void)both.accepted->receive(); }),
                HasSubstr("cannot verify a message: the attestation kernel has ended"));
  });
  EXPECT_THAT(error_of(ErrorCode::kUnavailable, [&] { both.accepted->send("never attested"); }),
              HasSubstr("cannot attest a message: the attestation kernel has ended"));
  receives.join();
}

TEST_F(Asking, a_close_with_a_question_under_way_sends_the_message_and_the_end) {
  Connected both(daemon_.in_process_options(), daemon_.options());
  daemon_.stop();
  ASSERT_FALSE(both.connecting->try_send("last", 7));
  both.connecting->close();
  daemon_.go_on();
  EXPECT_EQ(both.accepted->receive(7).text(), "last");
  for (unsigned context = 0; context < kContexts; ++context)
    EXPECT_FALSE(both.accepted->receive(context));
}

// The answer for one context comes while another is received.
TEST_F(Asking, a_message_that_is_missing_ends_its_context_and_no_other) {
  constexpr auto kAlgorithm = trusted::Algorithm::kHmacSha256;
  leat::detail::Wire there, back;
  leat::detail::AttestedTransport sender(
      std::make_unique<leat::detail::WireTransport>(there, back),
      {trusted::detail::make_local_home(daemon_.key_file(), kAlgorithm), kAlgorithm, true});
  leat::detail::AttestedTransport receiver(
      std::make_unique<leat::detail::WireTransport>(back, there),
      {trusted::detail::make_isolated_home({daemon_.path()}, 0, kAlgorithm, {}), kAlgorithm,
       false});
  const auto setup = sender.setup();
  sender.start(receiver.setup());
  receiver.start(setup);
  const auto text = std::as_bytes(std::span("text", 4));
  for (const unsigned context : {3U, 3U, 5U, 5U})
    ASSERT_TRUE(leat::detail::sent(sender.try_send(text, context)));
  there.items.pop_front();  // the first of context 3

  leat::detail::Delivery delivery;
  kill(daemon_.program().pid(), SIGSTOP);  // or its answer may come within this first look
  EXPECT_EQ(receiver.try_receive(3, delivery), leat::detail::ReceiveResult::kNothing);
  kill(daemon_.program().pid(), SIGCONT);
  for (int received = 0; received < 2;) {
    if (receiver.try_receive(5, delivery) != leat::detail::ReceiveResult::kMessage) continue;
    receiver.release(delivery);
    ++received;
  }
  using leat::detail::Look;
  using leat::detail::Side;
  EXPECT_TRUE(receiver.outlook(Side::kReceive, Look::kThorough).soon) << "its receiver must look";
  for (int i = 0; i < 3; ++i)
    expect_error(ErrorCode::kAuthentication, [&] { receiver.try_receive(3, delivery); });
  EXPECT_FALSE(receiver.outlook(Side::kReceive, Look::kThorough).soon) << "it has been told";
}

TEST_F(Asking, groups_meet_and_broadcast) {
  Listener listener("127.0.0.1:0", daemon_.options());
  std::vector<std::thread> workers;
  for (int i = 0; i < 2; ++i) {
    workers.emplace_back([&] {
      GroupWorkerOptions options;
      options.options = daemon_.options();
      GroupWorker worker = GroupWorker::connect(listener.address(), options);
      EXPECT_EQ(worker.channel().receive().text(), "to all");
      worker.send("from one");
      EXPECT_FALSE(worker.channel().receive());
    });
  }
  GroupMaster master = GroupMaster::accept(listener, 2);
  EXPECT_EQ(master.broadcast("to all"), 2U);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(master.receive().message.text(), "from one");
  master.shutdown();
  for (std::thread& worker : workers) worker.join();
}

}  // namespace
}  // namespace leat::attestd
