// A thread that sleeps, in a call or in poll(2) on fd(), still sees to it that its peer gets what
// it waits for.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/epoll.h"
#include "base/system_error.h"
#include "channel/channel_core.h"
#include "support/scale.h"
#include "support/silent_transport.h"
#include "transport/tcp/tcp.h"

namespace leat::detail {
namespace {

// A transport with a word for the peer that finds no room at once; no event says when there is
// some.
class OwesAWord : public SilentTransport {
 public:
  ReceiveResult try_receive(Context, Delivery&) override {
    if (looks_left_ != 0) --looks_left_;
    return ReceiveResult::kNothing;
  }
  Outlook outlook(Side, Look) const override {
    return {.comes = looks_left_ != 0 ? Outlook::Comes::kSilently : Outlook::Comes::kWithEvent};
  }

 private:
  unsigned looks_left_ = 10;
};

std::unique_ptr<ChannelCore> core_of(std::unique_ptr<Stream> stream,
                                     std::unique_ptr<Transport> transport, const char* name) {
  Connection connection;
  connection.stream = std::move(stream);
  connection.transport = std::move(transport);
  connection.transport_name = name;
  connection.closing = new_event();
  connection.peer_address = "the peer";
  Settings settings;
  settings.timeout = hang_limit();
  settings.spin = std::chrono::microseconds::zero();
  return std::make_unique<ChannelCore>(std::move(connection), settings);
}

bool readable(ChannelCore& core) {
  pollfd wait{core.fd(), POLLIN, 0};
  return poll(&wait, 1, 0) > 0;
}

void look_until_quiet(ChannelCore& core) {
  for (int looks = 0; readable(core); ++looks) {
    ASSERT_LT(looks, 100) << "fd() stays readable";
    ASSERT_FALSE(core.try_receive(0));
  }
}

TEST(Waiting, FdIsReadableUntilThePeerHasWhatItWaitsFor) {
  std::array<int, 2> ends{};
  check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), "socketpair");
  const Fd peer(ends[1]);
  const auto core = core_of(plain_stream(Fd(ends[0])), std::make_unique<OwesAWord>(), "ring");
  look_until_quiet(*core);
  EXPECT_EQ(core->connection().transport->outlook(Side::kReceive, Look::kBrief).comes,
            Outlook::Comes::kWithEvent);
}

// --- when send() returned, the kernel had taken only part of the message

constexpr std::size_t kMessageBytes = std::size_t{200} << 10;

// Two channels over a stream in which there is little room.
class NarrowTcp : public testing::Test {
 protected:
  NarrowTcp() {
    std::array<int, 2> ends{};
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), "socketpair");
    std::array<std::unique_ptr<Stream>, 2> streams;
    std::array<std::unique_ptr<TcpTransport>, 2> transports;
    for (const std::size_t i : {0, 1}) {
      const int bytes = 16 << 10;
      check(setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), "setsockopt");
      streams[i] = plain_stream(Fd(ends[i]));
      transports[i] = std::make_unique<TcpTransport>(*streams[i], std::size_t{1} << 20);
    }
    for (const std::size_t i : {0, 1}) transports[i]->start(transports[1 - i]->setup());
    sender_ = core_of(std::move(streams[0]), std::move(transports[0]), "tcp");
    receiver_ = core_of(std::move(streams[1]), std::move(transports[1]), "tcp");
  }

  std::unique_ptr<ChannelCore> sender_;
  std::unique_ptr<ChannelCore> receiver_;
};

TEST_F(NarrowTcp, TheRestOfAMessageLeavesWhileItsSenderPollsFd) {
  look_until_quiet(*sender_);
  sender_->send(std::vector<std::byte>(kMessageBytes), 0);
  std::optional<Message> message;
  for (int looks = 0; !message && looks < 1000; ++looks) {
    message = receiver_->try_receive(0);
    if (readable(*sender_)) {
      EXPECT_FALSE(sender_->try_receive(0));
    }
  }
  ASSERT_TRUE(message) << "the sender's fd() never said that there is room";
  EXPECT_EQ(message->size(), kMessageBytes);
  look_until_quiet(*sender_);
}

TEST_F(NarrowTcp, TheRestOfAMessageLeavesWhileItsSenderSleepsInReceive) {
  std::thread answered([&] { EXPECT_EQ(sender_->receive(0).size(), 1u); });
  while (sender_->stats().sleeps == 0) std::this_thread::yield();
  sender_->send(std::vector<std::byte>(kMessageBytes), 0);
  receiver_->set_receive_timeout(hang_limit() / 2);
  try {
    EXPECT_EQ(receiver_->receive(0).size(), kMessageBytes);
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
  receiver_->send(std::vector<std::byte>(1), 0);
  answered.join();
}

// --- looks

class CountsLooks : public SilentTransport {
 public:
  explicit CountsLooks(bool events_stay) { facts_.events_stay = events_stay; }
  ReceiveResult try_receive(Context, Delivery&) override {
    looks.fetch_add(1, std::memory_order_relaxed);
    return ReceiveResult::kNothing;
  }
  std::atomic<unsigned> looks = 0;  // relaxed: read once the thread has come to its end
};

class LooksBeforeSleep : public testing::TestWithParam<bool> {};

TEST_P(LooksBeforeSleep, AreOneWhereEventsStayAndElseOneMoreAfterArm) {
  std::array<int, 2> ends{};
  check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), "socketpair");
  const Fd peer(ends[1]);
  auto owned = std::make_unique<CountsLooks>(GetParam());
  const CountsLooks& transport = *owned;
  const auto core = core_of(plain_stream(Fd(ends[0])), std::move(owned), "ring");
  std::thread receiver([&] { EXPECT_THROW(core->receive(0), Error); });
  while (core->stats().sleeps == 0) std::this_thread::yield();
  const unsigned looks = transport.looks.load(std::memory_order_relaxed);
  core->close();
  receiver.join();
  EXPECT_EQ(looks, GetParam() ? 1U : 2U);
}

INSTANTIATE_TEST_SUITE_P(EventsStay, LooksBeforeSleep, testing::Bool());

}  // namespace
}  // namespace leat::detail
