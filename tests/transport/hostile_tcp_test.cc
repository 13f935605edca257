// Transport tcp against a peer that sends what frames it likes, as docs/wire_format.md has them: an
// error of that channel, the same at every later call, and nothing that was not sent is handed out.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/system_error.h"
#include "leat/error.h"
#include "net/stream.h"
#include "support/errors.h"
#include "transport/tcp/tcp.h"

namespace leat::detail {
namespace {

constexpr std::size_t kTcpMostBytes = 1 << 20;
constexpr std::uint32_t kFrameBytes = 256 << 10;

enum class Frame : std::uint8_t { kMessage = 1, kAnnounce, kCredit, kEnd };

struct FrameHeader {
  std::uint64_t value = 0;
  std::uint32_t bytes = 0;
  Frame kind = Frame::kMessage;
  std::uint8_t context = 0;
  std::uint16_t reserved = 0;
};

class HostileToTcp : public testing::Test {
 protected:
  HostileToTcp() { start(kTcpMostBytes); }

  void start(std::size_t max_message_bytes) {
    std::array<int, 2> ends{};
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), "socketpair");
    const int room = 4 << 20;  // for a frame at once
    for (const int end : ends)
      check(setsockopt(end, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), "setsockopt");
    peer_ = Fd(ends[1]);
    transport_.reset();
    stream_ = plain_stream(Fd(ends[0]));
    transport_ = std::make_unique<TcpTransport>(*stream_, max_message_bytes);
    transport_->start(transport_->setup());  // its peer says the same
  }
  void sends(const FrameHeader& header, std::size_t payload_bytes) {
    std::vector<std::byte> bytes(sizeof header + payload_bytes);
    std::memcpy(bytes.data(), &header, sizeof header);
    ASSERT_EQ(::send(peer_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void sends(Frame kind, std::uint64_t value, std::uint32_t payload_bytes = 0,
             std::uint8_t context = 0) {
    sends({value, payload_bytes, kind, context, 0}, payload_bytes);
  }
  ReceiveResult receive(Context context = 0) {
    Delivery delivery;
    return transport_->try_receive(context, delivery);
  }
  // In the same words at every call.
  void expect_refused() {
    std::string words;
    for (int i = 0; i < 3; ++i) {
      const std::string text = error_of(ErrorCode::kProtocol, [&] { receive(); });
      if (i == 0) words = text;
      EXPECT_EQ(text, words);
    }
    EXPECT_EQ(error_of(ErrorCode::kProtocol, [&] { receive(9); }), words);
    const std::array<std::byte, 8> message{};
    EXPECT_EQ(error_of(ErrorCode::kProtocol, [&] { (void)transport_->try_send(message, 0); }),
              words);
  }

  Fd peer_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<TcpTransport> transport_;
};

TEST_F(HostileToTcp, UnknownKind) {
  sends(static_cast<Frame>(9), 0);
  expect_refused();
}

TEST_F(HostileToTcp, ContextThatThereIsNot) {
  sends(Frame::kMessage, 0, 10, 16);
  expect_refused();
}

TEST_F(HostileToTcp, PayloadAboveAFrame) {
  sends({0, kFrameBytes + 1, Frame::kMessage, 0, 0}, 0);
  expect_refused();
}

TEST_F(HostileToTcp, MessageAboveTheLimit) {
  start(1000);
  sends(Frame::kMessage, 0, 1001);
  expect_refused();
}

TEST_F(HostileToTcp, AnnouncedSizeThatGoesInPlace) {
  sends(Frame::kAnnounce, kFrameBytes);
  expect_refused();
}

TEST_F(HostileToTcp, AnnouncedSizeAboveTheLimit) {
  sends(Frame::kAnnounce, kTcpMostBytes + 1);
  expect_refused();
}

TEST_F(HostileToTcp, AnnouncementWithAPayload) {
  sends(Frame::kAnnounce, kTcpMostBytes, 8);
  expect_refused();
}

TEST_F(HostileToTcp, AnnouncementWithinALargeMessage) {
  sends(Frame::kAnnounce, kTcpMostBytes);
  sends(Frame::kAnnounce, kTcpMostBytes);
  expect_refused();
}

TEST_F(HostileToTcp, MoreBytesThanAnnounced) {
  sends(Frame::kAnnounce, kFrameBytes + 1);
  sends(Frame::kMessage, 0, kFrameBytes);
  sends(Frame::kMessage, 0, 2);
  expect_refused();
}

TEST_F(HostileToTcp, NothingToTakeBack) {
  sends(Frame::kAnnounce, 0);
  expect_refused();
}

TEST_F(HostileToTcp, TakenBackTwice) {
  sends(Frame::kAnnounce, kTcpMostBytes);
  sends(Frame::kAnnounce, 0);
  sends(Frame::kAnnounce, 0);
  expect_refused();
}

TEST_F(HostileToTcp, MoreThanTheWindow) {
  for (int i = 0; i < 70'000; ++i) {
    // Frames without bytes count as well.
    const FrameHeader empty;
    if (::send(peer_.get(), &empty, sizeof empty, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
      if (receive(5) != ReceiveResult::kNothing) FAIL();
      --i;
    }
    if (i % 1000 == 999) {
      try {
        receive(5);
      } catch (const Error&) {
        return expect_refused();
      }
    }
  }
  FAIL() << "no error";
}

TEST_F(HostileToTcp, CreditThatWasNeverUsed) {
  sends(Frame::kCredit, 1);
  expect_refused();
}

TEST_F(HostileToTcp, MessageBehindTheEnd) {
  sends(Frame::kEnd, 0);
  sends(Frame::kMessage, 0, 10);
  expect_refused();
}

// The pieces that came are dropped, and never handed out as a message.
TEST_F(HostileToTcp, EndWithinALargeMessage) {
  sends(Frame::kAnnounce, kTcpMostBytes);
  sends(Frame::kMessage, 0, 1000);
  sends(Frame::kEnd, 0);
  peer_ = Fd();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(receive(), ReceiveResult::kEnd);
}

TEST_F(HostileToTcp, GoneWithinALargeMessage) {
  sends(Frame::kAnnounce, kTcpMostBytes);
  sends({0, 5000, Frame::kMessage, 0, 0}, 1000);
  peer_ = Fd();
  for (int i = 0; i < 3; ++i) expect_error(ErrorCode::kPeerDied, [&] { receive(); });
}

}  // namespace
}  // namespace leat::detail
