// leat::Socket where it differs from Channel: a stream that keeps its bytes together however calls
// end, and a receiving side that was shut down.
#include "leat/socket.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "channel/channel_core.h"
#include "leat/listener.h"
#include "support/channel_side.h"
#include "support/lone_core.h"
#include "support/pattern.h"
#include "support/scale.h"
#include "support/transport_side.h"

namespace leat::detail {
namespace {

std::byte stream_byte(std::size_t at) { return static_cast<std::byte>(at % 251); }

std::vector<std::byte> stream_bytes(std::size_t at, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = stream_byte(at + i);
  return bytes;
}

// Every transport that can be made over a device with faults, as hardware would be.
struct Case {
  std::string transport;
  ChunkMode mode = ChunkMode::kInPlace;
  std::size_t window = 0;
  LinkEnable link_enable = LinkEnable::kAuto;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.transport; }

class SocketOverHardware : public testing::TestWithParam<Case> {};

// After no value a program may go on with more bytes, with fewer, or with others: as with TCP
// nothing of those before was sent.
TEST_P(SocketOverHardware, TrySendThatFailsHasSentNothing) {
  const std::size_t total = scaled(std::size_t{20} << 20);
  TransportSetup setup;
  setup.transport = GetParam().transport;
  setup.first = setup.second = {.max_delay_polls = 5, .like_hardware = true};
  setup.settings.max_message_bytes = std::size_t{1} << 24;
  setup.settings.chunked_mode = GetParam().mode;
  setup.settings.chunked_window = GetParam().window;
  setup.settings.chunked_chunk_bytes = 8 << 10;
  setup.settings.chunked_link_enable = GetParam().link_enable;
  setup.settings.chunked_region_bytes = std::size_t{1} << 20;
  run_transports(
      PeerMode::kThreads, setup,
      [&](TransportSide& side) {
        LoneCore lone(std::move(side.transport));
        Socket socket(ChannelCore::channel_of(std::move(lone.core)));
        std::mt19937_64 random(1);
        const Deadline deadline = hang_deadline();
        for (std::size_t at = 0; at < total;) {
          ASSERT_FALSE(passed(deadline)) << "hangs at " << at;
          // Others than those that will be sent next, now and then.
          const std::size_t count = std::min<std::size_t>(1 + random() % 200'000, total - at);
          auto bytes = stream_bytes(at, count);
          const auto sent = socket.try_send(bytes);
          if (!sent) continue;
          ASSERT_GT(*sent, 0U);
          at += *sent;
        }
        socket.channel().shutdown();
        side.peer.hear("received");
      },
      [&](TransportSide& side) {
        LoneCore lone(std::move(side.transport));
        Socket socket(ChannelCore::channel_of(std::move(lone.core)));
        std::vector<std::byte> buffer(100'000);
        std::size_t at = 0;
        while (const std::size_t got = socket.recv(buffer)) {
          const auto expected = stream_bytes(at, got);
          ASSERT_TRUE(std::equal(expected.begin(), expected.end(), buffer.begin())) << "at " << at;
          at += got;
        }
        EXPECT_EQ(at, total);
        side.peer.tell("received");
      });
}

INSTANTIATE_TEST_SUITE_P(Transports, SocketOverHardware,
                         testing::Values(Case{"ring"}, Case{"batched"}, Case{"confirm-each"},
                                         Case{"chunked"}, Case{"chunked", ChunkMode::kInPlace, 2},
                                         Case{"chunked", ChunkMode::kInPlace, 0, LinkEnable::kOn},
                                         Case{"chunked", ChunkMode::kHeader, 2}));

class SocketShutdown : public ChannelTest {};

// More than any transport holds for a receiver that does not read.
constexpr std::size_t kMuch = std::size_t{32} << 20;

TEST_P(SocketShutdown, OfReceivingLetsThePeerSendAnyAmount) {
  run(
      [](ChannelSide& side) {
        Socket socket(std::move(side.channel));
        std::array<std::byte, 10> bytes{};
        ASSERT_EQ(socket.peek(bytes), bytes.size());
        socket.shutdown(Socket::Shutdown::kReceive);
        socket.shutdown(Socket::Shutdown::kReceive);
        EXPECT_EQ(socket.recv(bytes), 0U);
        side.peer.tell("shut");
        side.peer.hear("sent");
        // The other direction goes on.
        socket.send_all(stream_bytes(0, 1000));
        socket.shutdown(Socket::Shutdown::kSend);
        EXPECT_EQ(socket.try_recv(bytes), 0U);
        side.peer.hear("received");
      },
      [](ChannelSide& side) {
        Socket socket(std::move(side.channel));
        socket.send_all(stream_bytes(0, 10));
        side.peer.hear("shut");
        const auto bytes = stream_bytes(0, std::size_t{1} << 20);
        for (std::size_t sent = 0; sent < kMuch; sent += bytes.size()) socket.send_all(bytes);
        side.peer.tell("sent");
        std::vector<std::byte> answer(1000);
        ASSERT_TRUE(socket.recv_all(answer));
        EXPECT_EQ(answer, stream_bytes(0, 1000));
        EXPECT_EQ(socket.recv(answer), 0U);
        side.peer.tell("received");
      });
}

// While the peer goes on sending.
TEST_P(SocketShutdown, OfReceivingEndsWithTheSocket) {
  run(
      [](ChannelSide& side) {
        {
          Socket socket(std::move(side.channel));
          socket.shutdown(Socket::Shutdown::kBoth);
          side.peer.tell("shut");
        }
        side.peer.tell("closed");
      },
      [](ChannelSide& side) {
        Socket socket(std::move(side.channel));
        side.peer.hear("shut");
        const auto bytes = stream_bytes(0, 1000);
        const Deadline deadline = notice_deadline();
        expect_error(ErrorCode::kPeerDied, [&] {
          while (!passed(deadline)) socket.send_all(bytes);
        });
        side.peer.hear("closed");
      });
}

LEAT_INSTANTIATE_CHANNEL_SUITE(SocketShutdown);

}  // namespace
}  // namespace leat::detail
