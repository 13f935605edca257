// What a listener does while nobody is in accept, and with newcomers of ill will: connections come
// to stand by themselves, as many as its backlog, and silence keeps nobody out.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "channel/stranger.h"
#include "handshake/hello.h"
#include "leat/c.h"
#include "leat/listener.h"
#include "support/channel_side.h"
#include "support/leaks.h"

namespace leat::detail {
namespace {

std::vector<std::byte> good_hello() {
  Hello hello;
  hello.device("tcp").use = DeviceUse::kAllowed;
  hello.device_setting = "tcp";
  return encode(hello);
}

Options with_tcp() {
  Options options = channel_options({"tcp", "tcp"});
  options.connect_timeout = std::chrono::seconds(8);
  options.timeout = hang_limit();
  return options;
}

// A listener that will not lose its patience within the test.
Options patient() {
  Options options = with_tcp();
  options.handshake_timeout = 2 * hang_limit();
  return options;
}

// In one thread: nobody is in accept while it connects.
void expect_served(Listener& listener) {
  Channel client = Channel::connect(listener.address(), with_tcp());
  client.send("anyone there?");
  for (;;) {
    Channel server = listener.accept();
    const Message message = server.receive();
    EXPECT_EQ(message.text(), "anyone there?");
    server.send("yes");
    EXPECT_EQ(client.receive().text(), "yes");
    return;
  }
}

class DoorTest : public testing::TestWithParam<ChannelKind> {};

TEST_P(DoorTest, ListenConnectAndAcceptInOneThread) {
  Options options = channel_options(GetParam());
  options.connect_timeout = std::chrono::seconds(8);
  Listener listener(listening_address(GetParam()), options);
  Channel client = Channel::connect(listener.address(), options);
  client.send("from the same thread");
  Channel server = listener.accept();
  EXPECT_EQ(server.receive().text(), "from the same thread");
}

INSTANTIATE_TEST_SUITE_P(Channels, DoorTest, testing::ValuesIn(channel_kinds()),
                         testing::PrintToStringParamName());

TEST(Door, SilentConnectionsOfOneSourceKeepNobodyOut) {
  Listener listener("127.0.0.1:0", patient());
  std::vector<Fd> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(knock(listener.port()));
  expect_served(listener);
}

TEST(Door, HellosByteByByteKeepNobodyOut) {
  Listener listener("127.0.0.1:0", patient());
  const auto hello = good_hello();
  std::vector<Fd> slow;
  for (int i = 0; i < 300; ++i) {
    slow.push_back(knock(listener.port()));
    for (const Fd& each : slow) say(each, std::span(hello).subspan(slow.size() % 1000, 1));
  }
  expect_served(listener);
}

TEST(Door, ThoseWhoHangAfterTheirHelloKeepNobodyElseOut) {
  Listener listener("127.0.0.1:0", patient());
  const auto hello = good_hello();
  std::vector<Fd> hanging;
  for (int i = 0; i < 100; ++i) {
    hanging.push_back(knock(listener.port(), kElsewhere));
    say(hanging.back(), hello);
  }
  expect_served(listener);
}

TEST(Door, WhatWaitsToBeAcceptedIsBounded) {
  constexpr unsigned kBacklog = 64;
  constexpr unsigned kClients = 150;
  Listener listener("127.0.0.1:0", patient());
  std::atomic<unsigned> connected = 0;
  std::atomic<bool> done = false;
  std::vector<std::thread> clients;
  for (unsigned i = 0; i < kClients; ++i) {
    clients.emplace_back([&] {
      Options options = with_tcp();
      options.connect_timeout = hang_limit();
      const Channel channel = Channel::connect(listener.address(), options);
      ++connected;
      while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  }
  std::vector<Channel> accepted;
  while (accepted.size() < kClients) {
    accepted.push_back(listener.accept());
    const std::size_t bound = accepted.size() + kBacklog;
    for (int look = 0; look < 5; ++look) {
      EXPECT_LE(connected, bound);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  done = true;
  for (std::thread& client : clients) client.join();
}

}  // namespace
}  // namespace leat::detail
