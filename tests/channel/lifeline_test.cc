// The TCP connection beside a channel is its lifeline: its end is the peer's death, and a byte on
// it breaks the protocol. It must not keep a waiter awake that sleeps until the socket is readable.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "capi/stream_end.h"
#include "channel/channel_core.h"
#include "channel/group/core.h"
#include "leat/listener.h"
#include "leat/wait.h"
#include "support/errors.h"
#include "support/lone_core.h"
#include "support/scale.h"
#include "support/scratch.h"
#include "support/silent_transport.h"

namespace leat::detail {
namespace {

using testing::AllOf;
using testing::HasSubstr;

LoneCore with_a_peer_that_spoke() {
  LoneCore lone(std::make_unique<SilentTransport>());
  EXPECT_EQ(::send(lone.peer.get(), "?", 1, 0), 1);
  return lone;
}

TEST(Lifeline, AByteOnItEndsEveryCallThatWaits) {
  const LoneCore lone = with_a_peer_that_spoke();
  ChannelCore& core = *lone.core;
  const std::byte byte{};
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"receive", [&] { static_cast<void>(core.receive(0)); }},
      {"send",
       [&] {
         core.send({&byte, 1}, 0);
       }},
      {"try_send",
       [&] {
         static_cast<void>(core.try_send({&byte, 1}, 0));
       }},
      {"reserve", [&] { static_cast<void>(core.reserve(1, 0)); }},
      {"polling",
       [&] {
         const Deadline deadline = notice_deadline();
         while (!passed(deadline)) static_cast<void>(core.try_receive(0));
       }},
  };
  for (const auto& [name, call] : calls) {
    EXPECT_THAT(error_of(ErrorCode::kProtocol, call),
                AllOf(HasSubstr(LoneCore::kPeerAddress), HasSubstr("sent bytes on the TCP")))
        << name;
  }
  EXPECT_LT(core.stats().sleeps, 100u);
}

TEST(Lifeline, AByteOnItIsToldToAProgramThatPollsFd) {
  const LoneCore lone = with_a_peer_that_spoke();
  const auto look_while_readable = [&] {
    for (int i = 0; i < 100; ++i) {
      pollfd entry{lone.core->fd(), POLLIN, 0};
      ASSERT_EQ(poll(&entry, 1, 0), 1);
      static_cast<void>(lone.core->try_receive(0));
    }
  };
  EXPECT_THAT(error_of(ErrorCode::kProtocol, look_while_readable), HasSubstr("sent bytes"));
}

TEST(Lifeline, AByteOnItIsAnErrorOfAHandleOfC) {
  LoneCore lone = with_a_peer_that_spoke();
  c::StreamEnd end(std::move(lone.core));
  EXPECT_EQ(end.mask(true) & (POLLIN | POLLERR), unsigned{POLLIN | POLLERR});
  EXPECT_EQ(end.receive_state(), -EPROTO);
}

TEST(Lifeline, APeerThatSpokeAndWentIsGone) {
  LoneCore lone = with_a_peer_that_spoke();
  lone.peer.reset();
  EXPECT_THAT(error_of(ErrorCode::kPeerDied, [&] { static_cast<void>(lone.core->receive(0)); }),
              HasSubstr("went away"));
}

TEST(Lifeline, WhatCameBeforeItsEndMayShowLate) {
  const std::pair<const char*, std::function<bool(ChannelCore&)>> ways[] = {
      {"receive", [](ChannelCore& core) { return !core.receive(0); }},
      {"polling",
       [](ChannelCore& core) {
         std::optional<Message> message;
         while (!message) message = core.try_receive(0);
         return !*message;
       }},
      {"polling fd",
       [](ChannelCore& core) {
         std::optional<Message> message;
         for (const pollfd entry{core.fd(), POLLIN, 0}; !message; message = core.try_receive(0)) {
           pollfd ready = entry;
           EXPECT_EQ(poll(&ready, 1, poll_timeout_ms(hang_deadline())), 1);
         }
         return !*message;
       }},
  };
  for (const auto& [name, sees_the_end] : ways) {
    Settings settings;
    settings.spin = std::chrono::microseconds(0);
    LoneCore lone(std::make_unique<LateEnd>(), settings);
    lone.peer.reset();
    EXPECT_TRUE(sees_the_end(*lone.core)) << name;
  }
}

// --- real connections

class LifelineTest : public testing::Test {
 protected:
  static Options options() {
    Options options;
    options.timeout = hang_limit();
    options.device = "shm";
    return options;
  }

  static Stream& stream(Channel& channel) { return *ChannelCore::of(channel).connection().stream; }

  static void say(Channel& channel) {
    const std::byte byte{};
    ASSERT_EQ(stream(channel).try_write({&byte, 1}), 1u);
  }

  Options tls_options() {
    Options with_key = options();
    with_key.tls_psk_file = folder_.write("key", "00112233445566778899aabbccddeeff\n");
    return with_key;
  }

  ScratchFolder folder_;
};

// Accepts and connects in one thread: the handshake needs both.
struct Connected {
  explicit Connected(const Options& options) {
    Listener listener("127.0.0.1:0", options);
    std::thread client(
        [&] { second = std::make_unique<Channel>(Channel::connect(listener.address(), options)); });
    first = std::make_unique<Channel>(listener.accept());
    client.join();
  }
  std::unique_ptr<Channel> first, second;
};

TEST_F(LifelineTest, AByteOnItEndsWaitAnyAndAGroup) {
  const Connected pair(options());
  say(*pair.second);
  Channel* channel = pair.first.get();
  const auto nothing = [&] { return channel->try_receive().has_value(); };
  try {
    EXPECT_EQ(wait_any({&channel, 1}, WaitFor::kMessages, "a message", nothing), channel);
  } catch (const Error& error) {  // of try_receive, which may see it first
    EXPECT_EQ(error.code(), ErrorCode::kProtocol) << error.what();
  }
  std::vector<Channel> workers;
  workers.push_back(std::move(*pair.first));
  GroupCore master(std::move(workers), Settings{});
  const GroupMessage arrival = master.receive();
  ASSERT_NE(arrival.end, nullptr);
  EXPECT_EQ(arrival.end->code, ErrorCode::kProtocol) << arrival.end->reason;
}

TEST_F(LifelineTest, InsideTlsOneByteIsSeenToo) {
  const Connected pair(tls_options());
  ASSERT_TRUE(stream(*pair.first).encrypted());
  say(*pair.second);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(error_of(ErrorCode::kProtocol, [&] { static_cast<void>(pair.first->receive()); }),
                HasSubstr("sent bytes"));
    // The next waiter wakes too, though OpenSSL has taken the byte in.
    pollfd entry{stream(*pair.first).fd(), POLLIN, 0};
    ASSERT_EQ(poll(&entry, 1, 0), 1);
  }
}

// An attacker on the network, without a key: only a whole record shows that its bytes are forged;
// until then the waiter sleeps.
TEST_F(LifelineTest, BytesPutIntoTlsDoNotKeepAWaiterAwake) {
  const Connected pair(tls_options());
  const int socket = stream(*pair.second).fd();
  ASSERT_EQ(::send(socket, "\x17", 1, 0), 1);
  std::thread sender([&] {
    while (pair.first->stats().sleeps == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    pair.second->send("a message");
  });
  EXPECT_EQ(pair.first->receive().text(), "a message");
  sender.join();
  EXPECT_LT(pair.first->stats().sleeps, 20u);
  const std::array<unsigned char, 24> record{3, 3, 0, 20};
  ASSERT_EQ(::send(socket, record.data(), record.size(), 0), 24);
  EXPECT_THAT(error_of(ErrorCode::kProtocol, [&] { static_cast<void>(pair.first->receive()); }),
              HasSubstr("sent bytes"));
}

TEST_F(LifelineTest, InsideTlsAnOrderlyEndIsOne) {
  const Connected pair(tls_options());
  pair.second->close();
  EXPECT_FALSE(pair.first->receive());
}

}  // namespace
}  // namespace leat::detail
