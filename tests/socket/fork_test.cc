// Connections and listeners stay with the process that made them: its children can neither use nor
// harm them.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <optional>
#include <thread>

#include "base/system_error.h"
#include "support/channel_side.h"

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
    const pid_t child = check(::fork(), "fork");
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

  static bool is_closed(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code() == ErrorCode::kClosed &&
             std::string(error.what()).find("forked") != std::string::npos;
    }
    return false;
  }

  std::optional<Listener> listener_;
  std::optional<Channel> first_;
  std::optional<Channel> second_;
};

TEST_P(ForkTest, InTheChildEveryCallSaysWhoseTheChannelIs) {
  connect();
  in_child([&] {
    return is_closed([&] { first_->send("from the child"); }) &&
           is_closed([&] { (void)first_->try_send(std::as_bytes(std::span("x", 1))); }) &&
           is_closed([&] { (void)first_->reserve(8); }) && is_closed([&] { first_->flush(); }) &&
           is_closed([&] { first_->shutdown(); }) && is_closed([&] { (void)first_->receive(); }) &&
           is_closed([&] { (void)first_->try_receive(); });
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
    const bool refused = is_closed([&] { (void)listener_->try_accept(); });
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
  const pid_t child = check(::fork(), "fork");
  if (child == 0) {
    try {
      Channel channel = Channel::connect(listener_->address(), channel_options(GetParam()));
      channel.send("from the child");
      channel.flush();
      std::_Exit(channel.receive().text() == "from the parent" ? 0 : 1);
    } catch (const std::exception&) {
      std::_Exit(2);
    }
  }
  Channel channel = listener_->accept();
  EXPECT_EQ(channel.receive().text(), "from the child");
  channel.send("from the parent");
  channel.flush();
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

INSTANTIATE_TEST_SUITE_P(Channels, ForkTest, testing::ValuesIn(channel_kinds()),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace leat::detail
