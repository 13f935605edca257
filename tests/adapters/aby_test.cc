// ABY's socket over leat keeps the promises of the socket that it replaces.
#include "leat/adapters/aby.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "adapters/stand_ins/aby_socket.h"
#include "support/channel_side.h"
#include "support/free_port.h"

namespace leat::detail {
namespace {

void send_pattern(CSocket& socket, std::size_t bytes, std::uint64_t seed) {
  const std::vector<std::byte> data = pattern(bytes, seed);
  EXPECT_EQ(socket.Send(data.data(), bytes), bytes);
}

void expect_pattern(CSocket& socket, std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> data(bytes);
  ASSERT_EQ(socket.Receive(data.data(), bytes), bytes);
  leat::detail::expect_pattern(data, seed);
}

class AbyTest : public ChannelTest {
 protected:
  using Body = std::function<void(Peer&, CSocket&)>;

  // The first side is the server; its listening socket is gone when its body runs.
  void run(const Body& first, const Body& second,
           SecondEnds second_ends = SecondEnds::kByReturning) const {
    const auto port = static_cast<std::uint16_t>(free_port());
    const std::string host = server_host(kind());
    run_pair(
        mode(),
        [&](Peer& peer) {
          auto listening = std::make_unique<CSocket>(true, channel_options(kind()));
          ASSERT_TRUE(listening->Socket());
          ASSERT_TRUE(listening->Bind("", port));
          ASSERT_TRUE(listening->Listen());
          peer.tell("listening");
          const std::unique_ptr<CSocket> socket = listening->Accept();
          ASSERT_NE(socket, nullptr);
          listening.reset();
          first(peer, *socket);
        },
        [&](Peer& peer) {
          CSocket socket(false, channel_options(kind()));
          peer.hear("listening");
          ASSERT_TRUE(socket.Connect(host, port));
          second(peer, socket);
        },
        second_ends);
  }
};

TEST_P(AbyTest, OneThreadSendsWhileAnotherReceives) {
  const auto flood = [](Peer& peer, CSocket& socket) {
    const std::size_t count = scaled(1'000);
    const auto size_of = [](std::uint64_t i) {
      return std::mt19937_64(i)() % (i % 10 == 0 ? 300'000 : 100);
    };
    std::uint64_t bytes = 0;
    for (std::uint64_t i = 0; i < count; ++i) bytes += size_of(i);
    std::thread receiver([&] {
      for (std::uint64_t i = 0; i < count; ++i) expect_pattern(socket, size_of(i), i);
    });
    for (std::uint64_t i = 0; i < count; ++i) send_pattern(socket, size_of(i), i);
    receiver.join();
    EXPECT_EQ(socket.getSndCnt(), bytes);
    EXPECT_EQ(socket.getRcvCnt(), bytes);
    socket.ResetSndCnt();
    socket.ResetRcvCnt();
    EXPECT_EQ(socket.getSndCnt() + socket.getRcvCnt(), 0u);
    peer.barrier();
  };
  run(flood, flood);
}

TEST_P(AbyTest, EverySizeArrivesInPiecesAsAskedFor) {
  constexpr std::size_t kSizes[] = {0, 1, 48, 49, 65'536, 1'048'577, 16'777'216};
  run(
      [&](Peer& peer, CSocket& socket) {
        for (const std::size_t bytes : kSizes) send_pattern(socket, bytes, bytes);
        send_pattern(socket, 1'000, 5);
        peer.hear("all");
      },
      [&](Peer& peer, CSocket& socket) {
        for (const std::size_t bytes : kSizes) expect_pattern(socket, bytes, bytes);
        std::vector<std::byte> data(1'000);
        EXPECT_EQ(socket.Receive(data.data(), 300), 300u);
        EXPECT_EQ(socket.Receive(&data[300], 700), 700u);
        EXPECT_EQ(pattern_mismatch(data, 5), data.size());
        peer.tell("all");
      });
}

TEST_P(AbyTest, TheEndIsFewerBytes) {
  run(
      [](Peer&, CSocket& socket) {
        send_pattern(socket, 100, 1);
        socket.Close();
      },
      [](Peer&, CSocket& socket) {
        std::vector<std::byte> data(200);
        EXPECT_EQ(socket.Receive(data.data(), 200), 100u);
        EXPECT_EQ(socket.Receive(data.data(), 200), 0u);
        EXPECT_EQ(socket.getRcvCnt(), 100u);
        socket.Close();
        EXPECT_EQ(socket.Send(data.data(), 10), 0u);
        EXPECT_EQ(socket.Receive(data.data(), 10), 0u);
      });
}

class AbyDeath : public AbyTest {};  // processes only

TEST_P(AbyDeath, AKilledPeerIsFewerBytes) {
  run(
      [](Peer& peer, CSocket& socket) {
        expect_pattern(socket, 100, 1);
        peer.kill_other();
        std::vector<std::byte> data(100'000);
        EXPECT_EQ(socket.Receive(data.data(), data.size()), 0u);
        while (socket.Send(data.data(), data.size()) == data.size()) {
        }
      },
      [](Peer& peer, CSocket& socket) {
        send_pattern(socket, 100, 1);
        peer.await_end();
      },
      SecondEnds::kBySignal);
}

TEST_P(AbyTest, BothEndsKnowTheirAddresses) {
  run(
      [](Peer& peer, CSocket& socket) {
        peer.tell_value(socket.GetPort());
        EXPECT_EQ(peer.hear(), socket.GetIP());
      },
      [](Peer& peer, CSocket& socket) {
        EXPECT_NE(socket.GetPort(), 0);
        EXPECT_NE(socket.GetPort(), peer.hear_value<std::uint16_t>());
        peer.tell(socket.GetIP());
      });
}

LEAT_INSTANTIATE_CHANNEL_SUITE(AbyTest);
INSTANTIATE_TEST_SUITE_P(Channels, AbyDeath,
                         testing::Combine(testing::ValuesIn(channel_kinds()),
                                          testing::Values(PeerMode::kProcesses)),
                         channel_test_name);

TEST(AbyFailureTest, IsAValueAndOnRequestAText) {
  const auto port = static_cast<std::uint16_t>(free_port());
  CSocket socket(true);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(socket.Connect("127.0.0.1", port));
  EXPECT_NE(testing::internal::GetCapturedStderr().find("connect failed: "), std::string::npos);

  CSocket quiet;
  testing::internal::CaptureStderr();
  EXPECT_FALSE(quiet.Connect("127.0.0.1", port));
  EXPECT_FALSE(quiet.Connect("no-such-host.invalid", port));
  EXPECT_FALSE(quiet.Bind("300.1.2.3", port));
  EXPECT_FALSE(quiet.Listen());
  EXPECT_EQ(quiet.Accept(), nullptr);
  const Listener taken("127.0.0.1:" + std::to_string(port));
  EXPECT_FALSE(quiet.Bind("127.0.0.1", port));
  std::byte byte{};
  EXPECT_EQ(quiet.Send(&byte, 1), 0u);
  EXPECT_EQ(quiet.Receive(&byte, 1), 0u);
  EXPECT_EQ(quiet.GetIP(), "");
  EXPECT_EQ(quiet.GetPort(), 0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace leat::detail
