// leat-attestd as its clients see it: connections over it, its death, its limits.
// tests/trusted/README.md numbers the cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <random>
#include <thread>
#include <vector>

#include "attest/kernel_connection.h"
#include "attestd/daemon.h"
#include "attestd/session.h"
#include "leat/attest/isolated_kernel.h"
#include "leat/channel.h"
#include "leat/listener.h"
#include "support/errors.h"

namespace leat::attestd {
namespace {

using leat::detail::error_of;
using leat::detail::scaled;
using testing::AllOf;
using testing::HasSubstr;
using trusted::Verdict;

TEST(Attestd, connections_attest_with_it_whatever_the_other_side_uses) {
  Daemon daemon;
  ASSERT_FALSE(daemon.serves().empty()) << daemon.program().wait().err;
  for (const Options& other : {daemon.options(), daemon.in_process_options()}) {
    for (const char* algorithm : {"hmac-sha256", "aes256-gmac"}) {
      Options first = daemon.options(), second = other;
      first.attest_algorithm = second.attest_algorithm = algorithm;
      Connected both(first, second);
      EXPECT_THAT(both.accepted->description(), HasSubstr("in leat-attestd"));
      std::thread answers([&] {
        while (const Message message = both.connecting->receive())
          both.connecting->send(message.bytes());
        both.connecting->shutdown();
      });
      // The largest that the daemon attests too, and no larger one.
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{70'000},
                                      both.accepted->max_message_bytes()}) {
        leat::detail::send_pattern(*both.accepted, bytes, bytes);
        leat::detail::expect_message(both.accepted->receive(), bytes, bytes);
      }
      EXPECT_EQ(both.accepted->max_message_bytes(), both.connecting->max_message_bytes());
      const std::vector<std::byte> larger(both.accepted->max_message_bytes() + 1);
      leat::detail::expect_error(ErrorCode::kTooLarge, [&] { both.accepted->send(larger); });
      both.accepted->shutdown();
      EXPECT_FALSE(both.accepted->receive());
      answers.join();
    }
  }
}

TEST(Attestd, threads_of_a_client_get_counters_without_gap_or_repetition) {
  Daemon daemon;
  Session session(daemon);
  constexpr std::size_t kThreads = 12;  // more than the ring has slots
  const std::size_t each = scaled(200);
  std::vector<std::uint64_t> counters(kThreads * each);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < each; ++i) {
        trusted::Proof proof;
        const std::vector<std::byte> payload(t * 100);
        ASSERT_EQ(
            session.isolated.kernel().attest({.session = session.isolated.id()}, payload, proof),
            Verdict::kOk);
        std::memcpy(&counters[t * each + i], proof.header.data() + 24, sizeof counters[0]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::ranges::sort(counters);
  for (std::size_t i = 0; i < counters.size(); ++i) ASSERT_EQ(counters[i], i);
  const auto stands =
      session.isolated.kernel().counters(session.isolated.id(), 0).value_or(trusted::Counters{});
  EXPECT_EQ(stands.next_sent, counters.size());
}

enum class Whose { kSenders, kReceivers };
class AttestdKilled : public testing::TestWithParam<Whose> {};

// Case 30: the daemon of one side is killed while messages flow.
TEST_P(AttestdKilled, under_load_is_an_error_and_nothing_unverified_is_delivered) {
  Daemon sending, receiving;
  Daemon& killed = GetParam() == Whose::kSenders ? sending : receiving;
  Connected both(receiving.options(), sending.options());
  std::optional<ErrorCode> sender_error;
  const auto send = [&](std::uint64_t number) {
    std::array<std::byte, 300> message{};
    std::memcpy(message.data(), &number, sizeof number);
    both.connecting->send(message);
  };
  std::thread sends([&] {
    try {
      for (std::uint64_t number = 0;; ++number) send(number);
    } catch (const Error& error) {
      sender_error = error.code();
      if (GetParam() == Whose::kSenders) {
        EXPECT_THAT(error.what(), HasSubstr("the attestation kernel has ended"));
        leat::detail::expect_error(ErrorCode::kUnavailable, [&] { send(0); });
      }
    }
    both.connecting->close();
  });
  std::optional<ErrorCode> receiver_error;
  try {
    for (std::uint64_t expected = 0;; ++expected) {
      const Message message = both.accepted->receive();
      ASSERT_TRUE(message) << "an end that nobody attested";
      std::uint64_t number = 0;
      std::memcpy(&number, message.data(), sizeof number);
      ASSERT_EQ(number, expected);
      if (expected == 500) killed.kill();
    }
  } catch (const Error& error) {
    receiver_error = error.code();
  }
  both.accepted->close();
  sends.join();
  if (GetParam() == Whose::kSenders) {
    EXPECT_EQ(sender_error, ErrorCode::kUnavailable);
    EXPECT_TRUE(receiver_error);
  } else {
    EXPECT_EQ(receiver_error, ErrorCode::kUnavailable);
    EXPECT_TRUE(sender_error);
  }
}

INSTANTIATE_TEST_SUITE_P(Sides, AttestdKilled, testing::Values(Whose::kSenders, Whose::kReceivers),
                         [](const auto& whose) {
                           return whose.param == Whose::kSenders ? "sending" : "receiving";
                         });

TEST(Attestd, restarted_without_provisioning_refuses_to_attest) {
  Daemon daemon;
  Session before(daemon);
  EXPECT_EQ(before.exchange(), Verdict::kOk);
  daemon.kill();
  daemon.start();
  EXPECT_EQ(before.exchange(), Verdict::kUnavailable);
  EXPECT_THAT(error_of(ErrorCode::kUnavailable, [&] { trusted::IsolatedKernel{daemon.path()}; }),
              HasSubstr("has no sessions"));
  EXPECT_EQ(Session(daemon).exchange(), Verdict::kOk);  // a connection's own, of fresh numbers
}

TEST(Attestd, a_child_of_a_client_is_told_that_the_connection_is_not_its_own) {
  Daemon daemon;
  Session session(daemon);
  EXPECT_EQ(session.exchange(), Verdict::kOk);
  const pid_t child = fork();
  if (child == 0) _exit(session.exchange() == Verdict::kForked ? 0 : 1);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(session.exchange(), Verdict::kOk);
}

// --- case 33: clients that flood, lie, stop and die

TEST(Attestd, who_speaks_on_the_socket_is_cut_off_and_others_are_served) {
  Daemon daemon({"--max-clients", "3"});
  Session good(daemon);
  for (const std::size_t bytes : {1, 63, 64, 100'000}) {
    const RawClient bad(daemon.path());
    const std::vector<std::byte> message(bytes, std::byte{0xab});
    EXPECT_EQ(send(bad.socket.get(), message.data(), bytes, MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes));
    EXPECT_TRUE(bad.await_end());
    EXPECT_EQ(good.exchange(), Verdict::kOk);
  }
}

TEST(Attestd, as_many_clients_as_may_be_and_no_more) {
  Daemon daemon({"--max-clients", "3", "--max-clients-per-user", "2"});
  Session first(daemon);
  {
    Session second(daemon);
    EXPECT_THAT(error_of(ErrorCode::kResource, [&] { Session third(daemon); }),
                HasSubstr("--max-clients"));
    EXPECT_EQ(second.exchange(), Verdict::kOk);
  }
  EXPECT_EQ(first.exchange(), Verdict::kOk);
  // The place of the client that has gone is free; the daemon may hear of it only now.
  for (const auto deadline = leat::detail::hang_deadline();;) {
    try {
      EXPECT_EQ(Session(daemon).exchange(), Verdict::kOk);
      break;
    } catch (const Error&) {
      ASSERT_FALSE(leat::detail::passed(deadline));
    }
  }
}

TEST(Attestd, garbage_in_the_ring_harms_its_writer_only) {
  Daemon daemon;
  Session good(daemon);
  const RawClient bad(daemon.path());
  ASSERT_TRUE(bad.welcome);
  const trusted::detail::RingShape shape = bad.welcome->shape;
  std::mt19937_64 random(1);
  std::uint32_t next = 0;
  const std::size_t rounds = scaled(600);
  for (std::size_t round = 0; round < rounds; ++round) {
    const auto slot = shape.slot(bad.memory.data(), next);
    auto& body = slot.request->body;
    for (std::byte& byte : std::as_writable_bytes(std::span(&body, 1)))
      byte = static_cast<std::byte>(random());
    // Now and then an operation that exists, and a length that fits.
    if (round % 2 == 0) body.operation = static_cast<std::uint8_t>(1 + random() % 10);
    if (round % 4 < 2) body.bytes = static_cast<std::uint32_t>(random() % 300);
    slot.request->sleeping.store(1);
    slot.request->sequence.store(next + 1, std::memory_order_release);
    const std::uint64_t one = 1;
    ASSERT_EQ(write(bad.wake.get(), &one, sizeof one), 8);
    for (const auto deadline = leat::detail::hang_deadline();
         slot.reply->sequence.load(std::memory_order_acquire) != next + 1;) {
      ASSERT_FALSE(leat::detail::passed(deadline)) << "not answered: " << round;
      std::this_thread::yield();
    }
    EXPECT_NE(slot.reply->body.verdict, static_cast<std::uint32_t>(Verdict::kOk));
    ++next;
    if (round % 50 == 0) {
      ASSERT_EQ(good.exchange(), Verdict::kOk);
    }
  }
  // All of it at once, replies and the daemon's own word too.
  for (int i = 0; i < 3; ++i) {
    for (std::byte& byte : bad.memory.span().first(shape.bytes() / 16))
      byte = static_cast<std::byte>(random());
    EXPECT_EQ(good.exchange(), Verdict::kOk);
  }
}

TEST(Attestd, stopped_and_killed_clients_hold_up_nobody) {
  Daemon daemon({"--max-clients-per-user", "2"});
  Session good(daemon);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    // Asks for ever; in the middle of that it is stopped, later killed.
    try {
      Session busy(daemon);
      trusted::Proof proof;
      const std::vector<std::byte> payload(5000);
      if (write(ready[1], "r", 1) != 1) _exit(1);
      for (;;) busy.isolated.kernel().attest({.session = busy.isolated.id()}, payload, proof);
    } catch (const std::exception&) {
      _exit(1);
    }
  }
  close(ready[1]);
  char word = 0;
  ASSERT_EQ(read(ready[0], &word, 1), 1) << "the client was not let in";
  close(ready[0]);
  for (int i = 0; i < 200; ++i) ASSERT_EQ(good.exchange(), Verdict::kOk);
  kill(child, SIGSTOP);
  for (int i = 0; i < 200; ++i) ASSERT_EQ(good.exchange(), Verdict::kOk);
  EXPECT_THAT(error_of(ErrorCode::kResource, [&] { Session third(daemon); }),
              HasSubstr("--max-clients"));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  for (const auto deadline = leat::detail::hang_deadline();;) {  // until its place is free
    try {
      EXPECT_EQ(Session(daemon).exchange(), Verdict::kOk);
      break;
    } catch (const Error&) {
      ASSERT_FALSE(leat::detail::passed(deadline));
    }
  }
}

TEST(Attestd, users_and_their_sessions_are_as_allowed) {
  const std::string me = std::to_string(geteuid());
  EXPECT_EQ(Session(Daemon({"--allow", me + ":0,5"})).exchange(), Verdict::kOk);
  Daemon other({"--allow", me + ":5"});
  EXPECT_THAT(error_of(ErrorCode::kUnavailable, [&] { Session session(other); }),
              HasSubstr("key file"));
  Daemon strangers({"--allow", "4242"});
  EXPECT_THAT(error_of(ErrorCode::kAuthentication, [&] { Session session(strangers); }),
              HasSubstr("--allow"));
}

TEST(Attestd, ends_when_asked_and_takes_its_socket_with_it) {
  Daemon daemon;
  kill(daemon.program().pid(), SIGTERM);
  EXPECT_EQ(daemon.program().wait().exit_code, 0);
  EXPECT_NE(access(daemon.path().c_str(), F_OK), 0);
  EXPECT_THAT(error_of(ErrorCode::kUnavailable, [&] { Session session(daemon); }),
              HasSubstr("leat-attestd at"));
}

TEST(Attestd, a_folder_that_is_missing_is_told_with_advice) {
  const leat::detail::ScratchFolder folder;
  const std::string missing = folder.path() + "/missing/";
  std::vector<std::string> arguments{"--socket", missing + "socket", "--key-file",
                                     folder.write("key", std::string(64, 'a'))};
  if (geteuid() == 0) arguments.insert(arguments.end(), {"--user", "root"});
  const auto result = leat::detail::run_program("src/attestd/leat-attestd", arguments);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("there is no folder " + missing),
                                HasSubstr("install -d -o USER " + missing)));
}

TEST(Attestd, of_another_version_is_told) {
  const leat::detail::ScratchFolder folder;
  const std::string path = folder.path() + "/socket";
  const Fd listener = socket_at(path, bind);
  leat::detail::check(listen(listener.get(), 1), "listen");
  std::thread old([&] {
    const Fd client(accept(listener.get(), nullptr, nullptr));
    auto welcome = trusted::detail::encode({});
    welcome[3] = std::byte{'2'};  // as when slots had one order
    leat::detail::send_message(client.get(), welcome, {});
  });
  EXPECT_THAT(error_of(ErrorCode::kVersion,
                       [&] {
                         trusted::detail::KernelConnection connection({path},
                                                                      std::chrono::microseconds(0));
                       }),
              AllOf(HasSubstr(path), HasSubstr("the same release")));
  old.join();
}

}  // namespace
}  // namespace leat::attestd
