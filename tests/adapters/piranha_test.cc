// Piranha's BmrNet over leat keeps the promises of the one that it replaces.
#include "leat/adapters/piranha.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "adapters/stand_ins/communication_counter.h"
#include "support/channel_side.h"
#include "support/free_port.h"

namespace leat::detail {

stand_in::CommunicationCounter counter;

namespace {

using BmrNet = adapters::BmrNet<counter>;

void send_pattern(BmrNet& net, std::size_t bytes, std::uint64_t seed, int connection) {
  const std::vector<std::byte> data = pattern(bytes, seed);
  EXPECT_TRUE(net.sendMsg(data.data(), static_cast<int>(bytes), connection));
}

void expect_pattern(BmrNet& net, std::size_t bytes, std::uint64_t seed, int connection) {
  std::vector<std::byte> data(bytes);
  ASSERT_TRUE(net.receiveMsg(data.data(), static_cast<int>(bytes), connection));
  leat::detail::expect_pattern(data, seed);
}

class PiranhaTest : public ChannelTest {
 protected:
  using Body = std::function<void(Peer&, BmrNet&)>;

  void run(const Body& first, const Body& second,
           SecondEnds second_ends = SecondEnds::kByReturning) const {
    const int port = free_port();
    const std::string host = server_host(kind());
    run_pair(
        mode(),
        [&](Peer& peer) {
          BmrNet net(port, channel_options(kind()));
          ASSERT_TRUE(net.listenNow());
          first(peer, net);
        },
        [&](Peer& peer) {
          BmrNet net(host.c_str(), port, channel_options(kind()));
          ASSERT_TRUE(net.connectNow());
          second(peer, net);
        },
        second_ends);
  }
};

// As Piranha's synchronize(): a thread for each connection and direction.
TEST_P(PiranhaTest, ConnectionsAndDirectionsAreIndependent) {
  const auto flood = [](Peer& peer, BmrNet& net) {
    const std::size_t count = scaled(200);
    const auto size_of = [](std::uint64_t i) {
      return std::mt19937_64(i)() % (i % 10 == 0 ? 300'000 : 100);
    };
    std::vector<std::thread> threads;
    for (int connection = 0; connection < BmrNet::kConnections; ++connection) {
      const std::uint64_t seed = 10'000u * static_cast<std::uint64_t>(connection);
      threads.emplace_back([&, connection, seed] {
        for (std::uint64_t i = 0; i < count; ++i)
          send_pattern(net, size_of(i), seed + i, connection);
      });
      threads.emplace_back([&, connection, seed] {
        for (std::uint64_t i = 0; i < count; ++i)
          expect_pattern(net, size_of(i), seed + i, connection);
      });
    }
    for (std::thread& thread : threads) thread.join();
    peer.barrier();
  };
  run(flood, flood);
}

TEST_P(PiranhaTest, EverySizeArrivesAndIsCounted) {
  constexpr std::size_t kSizes[] = {0, 1, 48, 49, 65'536, 1'048'577, 16'777'216};
  long sum = 0;
  for (const std::size_t bytes : kSizes) sum += static_cast<long>(bytes);
  counter.sent = 0;
  counter.received = 0;
  run(
      [&](Peer& peer, BmrNet& net) {
        for (const std::size_t bytes : kSizes) send_pattern(net, bytes, bytes, 2);
        EXPECT_EQ(counter.sent, sum);
        peer.hear("all");
      },
      [&](Peer& peer, BmrNet& net) {
        for (const std::size_t bytes : kSizes) expect_pattern(net, bytes, bytes, 2);
        EXPECT_EQ(counter.received, sum);
        peer.tell("all");
      });
}

TEST_P(PiranhaTest, WhatIsNotThereIsFalse) {
  const auto refuse = [](Peer& peer, BmrNet& net) {
    testing::internal::CaptureStderr();
    std::byte byte{};
    EXPECT_FALSE(net.sendMsg(&byte, 1, 3));
    EXPECT_FALSE(net.sendMsg(&byte, 1, -1));
    EXPECT_FALSE(net.sendMsg(&byte, -1, 0));
    EXPECT_FALSE(net.receiveMsg(&byte, 1, 3));
    EXPECT_FALSE(net.receiveMsg(&byte, -1, 0));
    EXPECT_NE(testing::internal::GetCapturedStderr().find("connection 3"), std::string::npos);
    peer.tell("refused");
  };
  // One after the other, because they share a standard error.
  run(
      [&](Peer& peer, BmrNet& net) {
        refuse(peer, net);
        peer.hear("refused");
      },
      [&](Peer& peer, BmrNet& net) {
        peer.hear("refused");
        refuse(peer, net);
      });
}

TEST_P(PiranhaTest, AnEndTooEarlyIsFalse) {
  run([](Peer&, BmrNet& net) { send_pattern(net, 100, 1, 0); },
      [](Peer&, BmrNet& net) {
        std::vector<std::byte> data(200);
        EXPECT_FALSE(net.receiveMsg(data.data(), 200, 0));
        EXPECT_FALSE(net.receiveMsg(data.data(), 1, 1));
      });
}

class PiranhaDeath : public PiranhaTest {};  // processes only

TEST_P(PiranhaDeath, AKilledPeerIsFalse) {
  run(
      [](Peer& peer, BmrNet& net) {
        expect_pattern(net, 100, 1, 1);
        peer.kill_other();
        std::vector<std::byte> data(100'000);
        EXPECT_FALSE(net.receiveMsg(data.data(), static_cast<int>(data.size()), 1));
        while (net.sendMsg(data.data(), static_cast<int>(data.size()), 0)) {
        }
      },
      [](Peer& peer, BmrNet& net) {
        send_pattern(net, 100, 1, 1);
        peer.await_end();
      },
      SecondEnds::kBySignal);
}

// Those who speak leat but are no BmrNet do not take the place of one.
TEST_P(PiranhaTest, StrangersAreTurnedAway) {
  const int port = free_port();
  const std::string host = server_host(kind());
  run_pair(
      mode(),
      [&](Peer&) {
        BmrNet net(port, channel_options(kind()));
        ASSERT_TRUE(net.listenNow());
        expect_pattern(net, 100, 1, 2);
      },
      [&](Peer&) {
        Options options = channel_options(kind());
        options.connect_retry = true;
        for (const std::string_view first_words : {"", "x", "no such number"})
          Channel::connect(host + ":" + std::to_string(port), options).send(first_words);
        BmrNet net(host.c_str(), port, channel_options(kind()));
        ASSERT_TRUE(net.connectNow());
        send_pattern(net, 100, 1, 2);
      });
}

TEST_P(PiranhaTest, BothMayConnectAgain) {
  run(
      [](Peer& peer, BmrNet& net) {
        expect_pattern(net, 100, 1, 0);
        peer.tell("again");
        ASSERT_TRUE(net.listenNow());
        for (int connection = 0; connection < BmrNet::kConnections; ++connection)
          expect_pattern(net, 100, 2, connection);
        peer.tell("done");
      },
      [](Peer& peer, BmrNet& net) {
        send_pattern(net, 100, 1, 0);
        peer.hear("again");
        ASSERT_TRUE(net.connectNow());
        for (int connection = 0; connection < BmrNet::kConnections; ++connection)
          send_pattern(net, 100, 2, connection);
        peer.hear("done");
      });
}

LEAT_INSTANTIATE_CHANNEL_SUITE(PiranhaTest);
INSTANTIATE_TEST_SUITE_P(Channels, PiranhaDeath,
                         testing::Combine(testing::ValuesIn(channel_kinds()),
                                          testing::Values(PeerMode::kProcesses)),
                         channel_test_name);

TEST(PiranhaFailureTest, WhoSaysNothingKeepsNobodyWaiting) {
  const int port = free_port();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  Options limited;
  limited.handshake_timeout = std::chrono::seconds(5);
  std::thread server([&] {
    BmrNet net(port, limited);
    ASSERT_TRUE(net.listenNow());
    expect_pattern(net, 100, 1, 2);
  });
  Options patient;
  patient.connect_retry = true;
  patient.timeout = hang_limit();
  Channel silent = Channel::connect(address, patient);
  EXPECT_FALSE(silent.receive());  // turned away
  BmrNet net("127.0.0.1", port);
  EXPECT_TRUE(net.connectNow());
  send_pattern(net, 100, 1, 2);
  server.join();
}

TEST(PiranhaFailureTest, WrongAddressesAreFalse) {
  Options impatient;
  impatient.connect_timeout = std::chrono::milliseconds(100);
  const int port = free_port();
  EXPECT_FALSE(BmrNet("127.0.0.1", port, impatient).connectNow());
  EXPECT_FALSE(BmrNet("no-such-host.invalid", port, impatient).connectNow());
  EXPECT_FALSE(BmrNet("127.0.0.1", 70'000).connectNow());
  EXPECT_FALSE(BmrNet(port).connectNow());
  EXPECT_FALSE(BmrNet(-1).listenNow());
  const Listener taken(":" + std::to_string(port));
  EXPECT_FALSE(BmrNet(port).listenNow());
  std::byte byte{};
  EXPECT_FALSE(BmrNet(port).sendMsg(&byte, 1, 0));
}

}  // namespace
}  // namespace leat::detail
