// Connections and listeners stay with the process that made them: its children can neither use nor
// harm them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/system_error.h"
#include "base/uri.h"
#include "handshake/hello.h"
#include "leat/c.h"
#include "net/stream.h"
#include "net/tcp.h"
#include "support/channel_side.h"
#include "support/errors.h"
#include "support/fork_at_rest.h"
#include "support/free_port.h"

namespace leat::detail {
namespace {

class ForkTest : public testing::TestWithParam<ChannelKind> {
 protected:
  // Two ends of a connection, both in this process.
  void connect() {
    listener_.emplace(listening_address(GetParam()), channel_options(GetParam()));
    std::thread client(
        [&] { first_ = Channel::connect(listener_->address(), channel_options(GetParam())); });
    second_ = listener_->accept();
    client.join();
  }

  // Runs `body` in a child, which ends without cleaning up. EXPECTs that it returned true.
  template <typename Body>
  static void in_child(const Body& body) {
    const pid_t child = fork_at_rest();
    if (child == 0) {
      bool fine = false;
      try {
        fine = body();
      } catch (const std::exception&) {
        fine = false;
      }
      std::_Exit(fine ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }

  std::optional<Listener> listener_;
  std::optional<Channel> first_;
  std::optional<Channel> second_;
};

TEST_P(ForkTest, InTheChildEveryCallSaysWhoseTheChannelIs) {
  connect();
  in_child([&] {
    return is_closed_by_fork([&] { first_->send("from the child"); }) &&
           is_closed_by_fork([&] { (void)first_->try_send(std::as_bytes(std::span("x", 1))); }) &&
           is_closed_by_fork([&] { (void)first_->reserve(8); }) &&
           is_closed_by_fork([&] { first_->flush(); }) &&
           is_closed_by_fork([&] { first_->shutdown(); }) &&
           is_closed_by_fork([&] { (void)first_->receive(); }) &&
           is_closed_by_fork([&] { (void)first_->try_receive(); }) &&
           is_closed_by_fork([&] { (void)first_->fd(); });
  });
}

TEST_P(ForkTest, ChildThatClosesAndDestroysLeavesTheConnectionAlone) {
  connect();
  first_->send(std::string(1000, 'a'));
  Message held = second_->receive();
  in_child([&] {
    held.release();
    first_->close();
    first_.reset();
    second_.reset();
    listener_.reset();
    return true;
  });
  for (int i = 0; i < 100; ++i) {
    first_->send(std::string(100, 'b'));
    EXPECT_EQ(second_->receive().text(), std::string(100, 'b'));
    second_->send("back");
    EXPECT_EQ(first_->receive().text(), "back");
  }
  EXPECT_EQ(held.text(), std::string(1000, 'a'));
  first_->shutdown();
  EXPECT_FALSE(second_->receive());
}

TEST_P(ForkTest, ListenerOfTheParentGoesOn) {
  connect();
  in_child([&] {
    const bool refused = is_closed_by_fork([&] { (void)listener_->try_accept(); });
    listener_->close();
    listener_.reset();
    return refused;
  });
  std::thread client([&] {
    Channel channel = Channel::connect(listener_->address(), channel_options(GetParam()));
    channel.send("after the fork");
    EXPECT_FALSE(channel.receive());
  });
  EXPECT_EQ(listener_->accept().receive().text(), "after the fork");
  client.join();
}

TEST_P(ForkTest, ChildMayConnectToItsParent) {
  listener_.emplace(listening_address(GetParam()), channel_options(GetParam()));
  const pid_t child = fork_at_rest();
  if (child == 0) {
    try {
      Channel channel = Channel::connect(listener_->address(), channel_options(GetParam()));
      channel.send("from the child");
      channel.flush();
      // It stays until the parent has said all, which else could not be flushed.
      const bool heard = channel.receive().text() == "from the parent";
      std::_Exit(heard && !channel.receive() ? 0 : 1);
    } catch (const std::exception&) {
      std::_Exit(2);
    }
  }
  Channel channel = listener_->accept();
  EXPECT_EQ(channel.receive().text(), "from the child");
  channel.send("from the parent");
  channel.flush();
  channel.shutdown();
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// A child of this process, and a child of its own that lives on until this is destroyed.
class ParentAndChild {
 public:
  // The child runs `body`, and ends without destroying what that returned.
  template <typename Body>
  explicit ParentAndChild(const Body& body) {
    std::array<int, 2> ends{};
    check(::pipe2(ends.data(), O_CLOEXEC), "pipe2");
    const Fd end(ends[0]);
    over_ = Fd(ends[1]);
    parent_ = fork_at_rest();
    if (parent_ != 0) return;
    over_.reset();
    try {
      const auto kept [[maybe_unused]] = body();
      if (fork_at_rest() != 0) std::_Exit(0);
      char nothing = 0;
      std::_Exit(::read(end.get(), &nothing, 1) == 0 ? 0 : 1);
    } catch (const std::exception&) {
      std::_Exit(1);
    }
  }
  // EXPECTs that all went well until the first of them ended.
  void await_parents_end() const {
    int status = -1;
    ASSERT_EQ(::waitpid(parent_, &status, 0), parent_);
    EXPECT_EQ(status, 0);
  }

 private:
  Fd over_;
  pid_t parent_ = 0;
};

TEST_P(ForkTest, ChildThatLivesOnDoesNotHideItsParentsDeath) {
  listener_.emplace(listening_address(GetParam()), channel_options(GetParam()));
  const ParentAndChild others([&] {
    Channel channel = Channel::connect(listener_->address(), channel_options(GetParam()));
    channel.send("before its end");
    if (channel.receive().text() != "heard") throw std::runtime_error("not heard");
    return channel;
  });
  Channel channel = listener_->accept();
  EXPECT_EQ(channel.receive().text(), "before its end");
  channel.send("heard");
  try {
    channel.flush();
  } catch (const Error& error) {
    // It has heard and gone before the device said that it has heard.
    EXPECT_EQ(error.code(), ErrorCode::kPeerDied);
  }
  others.await_parents_end();
  expect_error(ErrorCode::kPeerDied, [&] { (void)channel.receive(); });
}

TEST_P(ForkTest, ChildThatLivesOnDoesNotListenForItsParent) {
  const int port = free_port();
  const std::string address = server_host(GetParam()) + ":" + std::to_string(port);
  const ParentAndChild others([&] { return Listener(address, channel_options(GetParam())); });
  others.await_parents_end();
  // The child may have come only half out of its fork(): then a newcomer is cut off.
  ErrorCode code = ErrorCode::kPeerDied;
  for (const Deadline deadline = notice_deadline();
       code == ErrorCode::kPeerDied && !passed(deadline);) {
    try {
      (void)Channel::connect(address, channel_options(GetParam()));
    } catch (const Error& error) {
      code = error.code();
    }
  }
  EXPECT_EQ(to_string(code), to_string(ErrorCode::kRefused));
}

INSTANTIATE_TEST_SUITE_P(Channels, ForkTest, testing::ValuesIn(channel_kinds()),
                         testing::PrintToStringParamName());

// A client in the middle of its handshake, not accepted yet.
TEST(ListenerFork, ChildThatLivesOnDoesNotKeepItsParentsNewcomers) {
  const ChannelKind kind{"tcp", "tcp"};
  Uri uri;
  uri.host = server_host(kind);
  uri.port = static_cast<std::uint16_t>(free_port());
  std::array<int, 2> ends{};
  check(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), "pipe2");
  const Fd hears(ends[0]);
  const Fd tells(ends[1]);
  const ParentAndChild others([&] {
    auto listener =
        std::make_unique<Listener>(host_and_port(uri.host, uri.port), channel_options(kind));
    char byte = 0;
    while (::read(hears.get(), &byte, 1) != 1) (void)listener->try_accept();
    return listener;
  });
  const Fd newcomer = connect_tcp(uri, hang_deadline(), true);
  const auto stream = plain_stream(Fd(check(::dup(newcomer.get()), "dup")));
  Hello hello;
  hello.device("tcp").use = DeviceUse::kAllowed;
  hello.device_setting = "tcp";
  write_all(*stream, encode(hello), hang_deadline());
  std::vector<std::byte> answer(kAnswerBytes + kResultBytes);
  read_all(*stream, answer, hang_deadline());
  ASSERT_EQ(::write(tells.get(), "x", 1), 1);
  others.await_parents_end();
  std::byte more{};
  expect_error(ErrorCode::kPeerDied, [&] { read_all(*stream, {&more, 1}, hang_deadline()); });
}

TEST(CApiFork, ChildThatLivesOnDoesNotHideItsParentsDeath) {
  // Handles have a thread, and the connecting side has a child.
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer allows no threads in a forked process";
  std::array<int, 2> ends{};
  check(::pipe2(ends.data(), O_CLOEXEC), "pipe2");
  const Fd hears(ends[0]);
  const Fd tells(ends[1]);
  sockaddr_in address{};
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  socklen_t bytes = sizeof address;
  // Forked before this process has a thread, which might hold a lock of AddressSanitizer's at that
  // moment. So it is told later where to connect.
  const ParentAndChild others([&] {
    if (::read(hears.get(), where, bytes) != bytes) throw std::runtime_error("not told");
    const int client = check(leat_socket(AF_INET, SOCK_STREAM, 0), "leat_socket");
    check(leat_connect(client, where, bytes), "leat_connect");
    char byte = 'x';
    if (leat_send(client, &byte, 1, 0) != 1 || leat_recv(client, &byte, 1, 0) != 1)
      throw std::runtime_error("not heard");
    return client;
  });
  const int listener = check(leat_socket(AF_INET, SOCK_STREAM, 0), "leat_socket");
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  check(leat_bind(listener, where, bytes), "leat_bind");
  check(leat_listen(listener, 1), "leat_listen");
  check(leat_getsockname(listener, where, &bytes), "leat_getsockname");
  ASSERT_EQ(::write(tells.get(), where, bytes), static_cast<ssize_t>(bytes));
  const int server = check(leat_accept(listener, nullptr, nullptr), "leat_accept");
  const timeval limit{.tv_sec = hang_limit().count(), .tv_usec = 0};
  check(leat_setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), "SO_RCVTIMEO");
  char byte = 0;
  EXPECT_EQ(leat_recv(server, &byte, 1, 0), 1);
  EXPECT_EQ(leat_send(server, &byte, 1, 0), 1);
  others.await_parents_end();
  EXPECT_EQ(leat_recv(server, &byte, 1, 0), 0);
  leat_close(server);
  leat_close(listener);
}

}  // namespace
}  // namespace leat::detail
