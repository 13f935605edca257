// What a caller does wrong is an error with a sentence: objects that were moved from, two threads
// in one side of a channel, protocol contexts that do not exist.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/settings.h"
#include "channel/channel_core.h"
#include "leat/attest/identity.h"
#include "leat/group.h"
#include "leat/leat.h"
#include "leat/remote_memory.h"
#include "leat/scml/party.h"
#include "leat/trusted/a2m.h"
#include "leat/trusted/a2m_verifier.h"
#include "leat/trusted/client.h"
#include "leat/wait.h"
#include "support/errors.h"
#include "support/lone_core.h"
#include "support/scale.h"
#include "support/silent_transport.h"

namespace leat {
namespace {

using detail::error_of;
using testing::AllOf;
using testing::HasSubstr;

using Calls = std::vector<std::pair<const char*, std::function<void()>>>;

// EXPECTs each to be refused with that word.
void expect_refused(const Calls& calls, const char* word) {
  for (const auto& [name, call] : calls)
    EXPECT_THAT(error_of(ErrorCode::kClosed, call), HasSubstr(word)) << name;
}

// A listener, and two ends of a connection at it.
struct Connected {
  explicit Connected(const std::string& transport = "ring", const std::string& device = "shm")
      : listener("127.0.0.1:0", options(transport, device)) {
    std::thread client([&] {
      second = std::make_unique<Channel>(
          Channel::connect(listener.address(), options(transport, device)));
    });
    first = std::make_unique<Channel>(listener.accept());
    client.join();
  }
  static Options options(const std::string& transport, const std::string& device) {
    Options options;
    options.timeout = detail::hang_limit();
    options.transport = transport;
    options.device = device;
    return options;
  }
  Listener listener;
  std::unique_ptr<Channel> first, second;
};

TEST(MovedFrom, AChannelSaysSo) {
  const Connected pair;
  Channel& empty = *pair.first;
  Channel taker = std::move(empty);
  expect_refused({{"send", [&] { empty.send("x"); }},
                  {"try_send", [&] { static_cast<void>(empty.try_send("x")); }},
                  {"reserve", [&] { static_cast<void>(empty.reserve(1)); }},
                  {"commit", [&] { empty.commit(1); }},
                  {"abandon", [&] { empty.abandon(); }},
                  {"receive", [&] { static_cast<void>(empty.receive()); }},
                  {"try_receive", [&] { static_cast<void>(empty.try_receive()); }},
                  {"flush", [&] { empty.flush(); }},
                  {"try_flush", [&] { static_cast<void>(empty.try_flush()); }},
                  {"shutdown", [&] { empty.shutdown(); }},
                  {"fd", [&] { empty.fd(); }},
                  {"max_message_bytes", [&] { static_cast<void>(empty.max_message_bytes()); }},
                  {"max_in_place_bytes", [&] { static_cast<void>(empty.max_in_place_bytes()); }},
                  {"stats", [&] { static_cast<void>(empty.stats()); }},
                  {"transport", [&] { static_cast<void>(empty.transport()); }},
                  {"description", [&] { static_cast<void>(empty.description()); }},
                  {"peer_address", [&] { static_cast<void>(empty.peer_address()); }},
                  {"wait_any",
                   [&] {
                     Channel* channel = &empty;
                     static_cast<void>(wait_any({&channel, 1}, WaitFor::kMessages, "a message",
                                                [] { return false; }));
                   }},
                  {"Socket",
                   [&] {
                     Socket(std::move(empty)).send_all({});
                     Socket(std::move(empty)).fd();
                   }}},
                 "channel was moved from");
  empty.close();
  pair.second->send("hello");
  EXPECT_EQ(taker.receive().text(), "hello");
  empty = std::move(taker);
  empty.send("back");
  EXPECT_EQ(pair.second->receive().text(), "back");
}

TEST(MovedFrom, ASocketSaysSoAndAClosedOneToo) {
  const Connected pair;
  Socket empty(std::move(*pair.first));
  Socket taker = std::move(empty);
  std::array<std::byte, 4> bytes{};
  const Calls calls{{"send", [&] { empty.send(bytes); }},
                    {"try_send", [&] { empty.try_send(bytes); }},
                    {"send_all", [&] { empty.send_all(bytes); }},
                    {"recv", [&] { empty.recv(bytes); }},
                    {"try_recv", [&] { empty.try_recv(bytes); }},
                    {"recv_all", [&] { empty.recv_all(bytes); }},
                    {"peek", [&] { empty.peek(bytes); }},
                    {"try_peek", [&] { empty.try_peek(bytes); }},
                    {"shutdown", [&] { empty.shutdown(Socket::Shutdown::kBoth); }},
                    {"set_send_timeout", [&] { empty.set_send_timeout(std::chrono::seconds(1)); }},
                    {"fd", [&] { empty.fd(); }},
                    {"stats", [&] { static_cast<void>(empty.stats()); }},
                    {"device", [&] { static_cast<void>(empty.device()); }},
                    {"channel", [&] { empty.channel(); }}};
  expect_refused(calls, "socket was closed, or moved from");
  empty.close();
  empty = std::move(taker);
  empty.send_all(bytes);
  empty.close();
  expect_refused(calls, "socket was closed, or moved from");
}

TEST(MovedFrom, AListenerSaysSo) {
  Listener empty("127.0.0.1:0");
  const Listener taker = std::move(empty);
  expect_refused({{"accept", [&] { static_cast<void>(empty.accept()); }},
                  {"try_accept", [&] { static_cast<void>(empty.try_accept()); }},
                  {"address", [&] { static_cast<void>(empty.address()); }},
                  {"port", [&] { static_cast<void>(empty.port()); }},
                  {"fd", [&] { static_cast<void>(empty.fd()); }},
                  {"GroupMaster::accept", [&] { GroupMaster::accept(empty, 1); }}},
                 "listener was moved from");
  empty.close();
  EXPECT_NE(taker.port(), 0u);
}

TEST(MovedFrom, AGroupSaysSoOnBothSides) {
  Listener listener("127.0.0.1:0");
  std::unique_ptr<GroupWorker> worker;
  std::thread client(
      [&] { worker = std::make_unique<GroupWorker>(GroupWorker::connect(listener.address())); });
  GroupMaster empty = GroupMaster::accept(listener, 1);
  client.join();
  GroupMaster taker = std::move(empty);
  expect_refused({{"broadcast", [&] { empty.broadcast("x"); }},
                  {"resume", [&] { empty.resume({}); }},
                  {"send", [&] { empty.send(0, "x"); }},
                  {"gather", [&] { static_cast<void>(empty.gather()); }},
                  {"receive", [&] { static_cast<void>(empty.receive()); }},
                  {"next_end", [&] { static_cast<void>(empty.next_end()); }},
                  {"flush", [&] { empty.flush(); }},
                  {"shutdown", [&] { empty.shutdown(); }},
                  {"drop", [&] { empty.drop(0, "it hangs"); }},
                  {"size", [&] { static_cast<void>(empty.size()); }},
                  {"alive", [&] { static_cast<void>(empty.alive()); }},
                  {"end", [&] { static_cast<void>(empty.end(0)); }},
                  {"channel", [&] { empty.channel(0); }},
                  {"describe", [&] { static_cast<void>(empty.describe()); }}},
                 "group was moved from");
  empty.close();
  const GroupWorker other = std::move(*worker);
  expect_refused({{"send", [&] { worker->send("x"); }},
                  {"receive", [&] { static_cast<void>(worker->receive()); }}},
                 "channel was moved from");
}

TEST(MovedFrom, AChannelOfMessageArraysSaysSo) {
  Connected pair("planned");
  PlannedChannel empty(std::move(*pair.first));
  const PlannedChannel taker = std::move(empty);
  std::array<std::byte, 8> bytes{};
  expect_refused({{"open", [&] { empty.open(0, {}); }},
                  {"close", [&] { empty.close(0); }},
                  {"is_open", [&] { static_cast<void>(empty.is_open(0)); }},
                  {"send", [&] { empty.send(0, 0, bytes); }},
                  {"try_send", [&] { static_cast<void>(empty.try_send(0, 0, bytes)); }},
                  {"reserve", [&] { static_cast<void>(empty.reserve(0, 0)); }},
                  {"try_reserve", [&] { static_cast<void>(empty.try_reserve(0, 0)); }},
                  {"flush", [&] { empty.flush(); }},
                  {"receive", [&] { static_cast<void>(empty.receive(0, 0)); }},
                  {"try_receive", [&] { static_cast<void>(empty.try_receive(0, 0)); }},
                  {"missing", [&] { static_cast<void>(empty.missing(0)); }},
                  {"region_bytes", [&] { static_cast<void>(empty.region_bytes()); }}},
                 "moved from");
}

TEST(MovedFrom, SoDoWhatIsBuiltOnThem) {
  trusted::SigningKey key;
  const trusted::SigningKey other_key = std::move(key);
  trusted::LocalKernel kernel(1, 1);
  trusted::A2mVerifier verifier(kernel, 1);
  const trusted::A2mVerifier other_verifier = std::move(verifier);
  expect_refused({{"public_key", [&] { static_cast<void>(key.public_key()); }},
                  {"sign", [&] { static_cast<void>(key.sign({})); }},
                  {"challenge", [&] { static_cast<void>(verifier.challenge()); }}},
                 "was moved from");
}

// --- two threads in one side

// Calls it in one thread until that waits, and then in this one.
void expect_second_refused(detail::ChannelCore& core, const std::function<void()>& call,
                           const char* word) {
  std::thread first(
      [&] { EXPECT_THAT(error_of(ErrorCode::kClosed, call), HasSubstr("was closed")); });
  while (core.stats().sleeps == 0) std::this_thread::yield();
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, call),
              AllOf(HasSubstr(word), HasSubstr("One thread may send while another receives")));
  core.interrupt();
  first.join();
  EXPECT_THAT(error_of(ErrorCode::kClosed, call), HasSubstr("was closed"));
}

TEST(TwoThreads, InTheReceivingSideAreAnError) {
  for (const bool blocking : {true, false}) {
    const detail::LoneCore lone(std::make_unique<detail::SilentTransport>());
    std::atomic<int> calls = 0;
    expect_second_refused(
        *lone.core,
        [&] {
          // The first one blocks in any case.
          if (calls++ == 0 || blocking)
            static_cast<void>(lone.core->receive(0));
          else
            static_cast<void>(lone.core->try_receive(0));
        },
        "receiving from");
  }
}

TEST(TwoThreads, InTheSendingSideAreAnError) {
  const detail::LoneCore lone(std::make_unique<detail::SilentTransport>());
  const std::byte byte{};
  expect_second_refused(
      *lone.core,
      [&] {
        lone.core->send({&byte, 1}, 0);
      },
      "sending to");
}

// Neither of them ever sleeps.
TEST(TwoThreads, ThatSpinInTheSameSideAreAnError) {
  detail::Settings spinning;
  spinning.spin = std::chrono::microseconds(-1);
  const detail::LoneCore lone(std::make_unique<detail::SilentTransport>(), spinning);
  std::atomic<int> refused = 0;
  std::atomic<int> closed = 0;
  const auto receive = [&] {
    try {
      static_cast<void>(lone.core->receive(0));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInvalidArgument) ++refused;
      if (error.code() == ErrorCode::kClosed) ++closed;
    }
    lone.core->interrupt();  // ends the other's wait
  };
  std::thread other(receive);
  receive();
  other.join();
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(closed, 1);
}

TEST(TwoThreads, OneOfThemInWaitAnyAreAnError) {
  const Connected pair;
  Channel* channel = pair.first.get();
  std::atomic<bool> over = false;
  std::thread waiter([&] {
    wait_any({&channel, 1}, WaitFor::kMessages, "a message",
             [&] { return channel->try_receive().has_value() || over; });
  });
  while (channel->stats().sleeps == 0) std::this_thread::yield();
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { static_cast<void>(channel->receive()); }),
              HasSubstr("receiving from"));
  over = true;
  pair.second->send("wakes it");
  waiter.join();
}

TEST(TwoThreads, OneInEachSideAreNone) {
  const Connected pair;
  Channel& channel = *pair.first;
  std::thread receiver([&] { EXPECT_EQ(channel.receive().text(), "answer"); });
  while (channel.stats().sleeps == 0) std::this_thread::yield();
  channel.send("question");
  EXPECT_EQ(pair.second->receive().text(), "question");
  pair.second->send("answer");
  receiver.join();
}

// --- arguments

TEST(Arguments, AContextThatThereIsNotIsNamedAsItWasGiven) {
  const Connected pair;
  const auto receive = [&](unsigned context) {
    return error_of(ErrorCode::kInvalidArgument,
                    [&] { static_cast<void>(pair.first->receive(context)); });
  };
  EXPECT_EQ(receive(static_cast<unsigned>(-1)),
            "receive: there is no protocol context -1. Contexts are 0 to 15.");
  EXPECT_THAT(receive(16), HasSubstr("context 16."));
}

TEST(Arguments, AClosedChannelNamesTheCall) {
  const Connected pair;
  pair.first->close();
  EXPECT_THAT(error_of(ErrorCode::kClosed, [&] { pair.first->send("x"); }),
              testing::StartsWith("send: this channel to"));
  EXPECT_THAT(error_of(ErrorCode::kClosed, [&] { static_cast<void>(pair.first->try_receive()); }),
              testing::StartsWith("receive: this channel to"));
}

TEST(Arguments, TextIsSentWithoutBlockingToo) {
  const Connected pair;
  EXPECT_TRUE(pair.first->try_send("text"));
  EXPECT_EQ(pair.second->receive().text(), "text");
}

}  // namespace
}  // namespace leat
