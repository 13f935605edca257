// What a listener does while no thread is in accept, and with hostile newcomers: it completes
// connections by itself, as many as its backlog, and silent newcomers keep no client out.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
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
  options.connect_timeout = hang_limit();
  options.timeout = hang_limit();
  return options;
}

// Options of a listener whose deadlines help no client within the test: a place that becomes free
// only when a handshake has lasted too long comes after the client's connect_timeout.
Options patient() {
  Options options = with_tcp();
  options.handshake_timeout = 4 * hang_limit();
  return options;
}

// Of newcomers.
constexpr std::size_t kPlaces = 128;

// Counts this process's sockets at the listener's end of its connections, and its own socket.
std::size_t sockets_of(unsigned port) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    sockaddr_in address{};
    socklen_t bytes = sizeof address;
    const int fd = std::stoi(entry.path().filename());
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) continue;
    if (address.sin_family == AF_INET && ntohs(address.sin_port) == port) ++count;
  }
  return count;
}

// Clients that all connect at once, each in a thread of its own, and stay. With more than a
// listener has places, those that the scheduler keeps from saying hello for long may be ended.
class Crowd {
 public:
  Crowd(const std::string& address, unsigned count) : count_(count) {
    for (unsigned i = 0; i < count; ++i) clients_.emplace_back([this, address] { stay(address); });
  }
  ~Crowd() {
    dismiss();
    for (std::thread& client : clients_) client.join();
  }
  // From now on an error is what those expect that wait, and the others end.
  void dismiss() { done_ = true; }
  unsigned connected() const { return connected_; }

 private:
  void stay(const std::string& address) {
    try {
      const Channel channel = Channel::connect(address, with_tcp());
      ++connected_;
      while (!done_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } catch (const Error& error) {
      EXPECT_TRUE(done_ || count_ > kMost) << error.what();
    }
  }

  static constexpr unsigned kMost = 150;

  const unsigned count_;
  std::atomic<unsigned> connected_ = 0;
  std::atomic<bool> done_ = false;
  std::vector<std::thread> clients_;
};

// EXPECTs that of a crowd exactly that many connect, and for a while no more.
void expect_connected(const Crowd& crowd, std::size_t count) {
  const Deadline deadline = hang_deadline();
  while (crowd.connected() < count && !passed(deadline))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(crowd.connected(), count);
}

// In one thread: nobody is in accept while it connects.
void expect_served(Listener& listener, Options options = with_tcp()) {
  Channel client = Channel::connect(listener.address(), options);
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
  options.connect_timeout = hang_limit();
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

// As many as fill every place of a newcomer and every handshake that a source may have, and more.
// No handshake is ended as too slow within the client's time.
TEST(Door, CompleteHellosOfOneSourceKeepNobodyElseOut) {
  Options options = with_tcp();
  options.handshake_timeout = std::chrono::minutes(1);
  options.connect_timeout = std::chrono::seconds(20);
  Listener listener("127.0.0.1:0", options);
  const auto hello = good_hello();
  std::vector<Fd> greeted;
  for (int i = 0; i < 300; ++i) {
    greeted.push_back(knock(listener.port(), kElsewhere));
    say(greeted.back(), hello);
  }
  expect_served(listener, options);
}

// One that is turned away to make room hears why.
TEST(Door, AClientThatMadeRoomIsToldSo) {
  Options options = with_tcp();
  options.handshake_timeout = std::chrono::seconds(10);
  Listener listener("127.0.0.1:0", options);
  const auto hello = good_hello();
  std::vector<Fd> greeted;
  for (int i = 0; i < 300; ++i) {
    greeted.push_back(knock(listener.port(), kElsewhere));
    say(greeted.back(), hello);
  }
  std::size_t told = 0;
  const Deadline deadline = hang_deadline();
  while (told == 0 && !passed(deadline)) {
    for (const Fd& each : greeted) {
      std::array<char, 4096> answer{};
      const ssize_t got = recv(each.get(), answer.data(), answer.size(), MSG_DONTWAIT | MSG_PEEK);
      if (got <= 0) continue;
      const std::string_view text(answer.data(), static_cast<std::size_t>(got));
      if (text.find("this host have waited") != std::string_view::npos) ++told;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GT(told, 0U);
}

TEST(Door, WhatWaitsToBeAcceptedIsBounded) {
  for (const std::size_t backlog : {std::size_t{1}, std::size_t{3}, std::size_t{64}}) {
    const unsigned clients = backlog == 64 ? 150 : 100;
    Options options = patient();
    if (backlog != 64) options.backlog = backlog;  // the default
    Listener listener("127.0.0.1:0", options);
    Crowd crowd(listener.address(), clients);
    std::vector<Channel> accepted;
    while (accepted.size() < clients) {
      accepted.push_back(listener.accept());
      const std::size_t bound = accepted.size() + backlog;
      for (int look = 0; look < 5; ++look) {
        EXPECT_LE(crowd.connected(), bound);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }
}

// The connections accepted, those of the backlog, and newcomers.
TEST(Door, DescriptorsAreBoundedHoweverManyClientsCome) {
  constexpr unsigned kClients = 400;
  constexpr std::size_t kAccepted = 8;
  constexpr std::size_t kBacklog = 64;
  Listener listener("127.0.0.1:0", patient());
  Crowd crowd(listener.address(), kClients);
  std::vector<Channel> accepted;
  while (accepted.size() < kAccepted) accepted.push_back(listener.accept());
  expect_connected(crowd, kAccepted + kBacklog);
  EXPECT_LE(sockets_of(listener.port()), 1 + kAccepted + kBacklog + kPlaces);
  crowd.dismiss();
  listener.close();
}

// As listen() does, leat_listen completes one connection more than it is told, and may be called
// again.
TEST(Door, ListenSaysHowManyWait) {
  const int listening = leat_socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  ASSERT_EQ(leat_bind(listening, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(leat_listen(listening, 2), 0) << leat_last_error();
  ASSERT_EQ(leat_getsockname(listening, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  Crowd crowd("127.0.0.1:" + std::to_string(ntohs(address.sin_port)), 20);
  expect_connected(crowd, 3);
  EXPECT_EQ(leat_listen(listening, 6), 0) << leat_last_error();
  expect_connected(crowd, 7);
  const int accepted = leat_accept(listening, nullptr, nullptr);
  EXPECT_GE(accepted, 0) << leat_last_error();
  expect_connected(crowd, 8);
  // Fewer: none of those that have connected is ended.
  EXPECT_EQ(leat_listen(listening, 0), 0) << leat_last_error();
  expect_connected(crowd, 8);
  crowd.dismiss();
  EXPECT_EQ(leat_close(accepted), 0);
  EXPECT_EQ(leat_close(listening), 0);
}

}  // namespace
}  // namespace leat::detail
