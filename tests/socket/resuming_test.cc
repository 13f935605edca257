// A peer that died while a transport resumed: its last words still arrive.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <utility>

#include "base/system_error.h"
#include "socket/channel_core.h"
#include "support/errors.h"
#include "support/scale.h"

namespace leat::detail {
namespace {

constexpr unsigned kLooks = 3;

// The first look finds that the way has failed and begins to resume, which the peer's death ends a
// few looks later; only then is there a message, and after it an error.
class FailedWay : public Transport {
 public:
  std::vector<std::byte> setup() const override { return {}; }
  void start(std::span<const std::byte>) override {}
  bool try_send(std::span<const std::byte>, Context) override { return false; }
  std::span<std::byte> try_reserve(std::size_t, Context) override { return {}; }
  bool try_commit(std::size_t) override { return false; }
  void abandon() override {}
  bool try_end() override { return true; }
  bool try_flush() override { return true; }
  bool try_drain() override { return true; }
  ReceiveResult try_receive(Context, Delivery& delivery) override {
    begun_ = true;
    if (resuming()) return ReceiveResult::kNothing;
    if (std::exchange(taken_, true)) throw Error(ErrorCode::kPeerDied, "could not be resumed");
    delivery.small[0] = std::byte{42};
    delivery.bytes = 1;
    return ReceiveResult::kMessage;
  }
  bool pending() const override { return false; }
  void release(Delivery&) noexcept override {}
  void arm(Side) override {}
  int event_fd(Side) const override { return event_.get(); }
  bool room_comes_silently() const override { return true; }
  bool resuming() const override { return begun_ && looks_++ < kLooks; }
  std::size_t max_in_place_bytes(Context) const override { return 1; }
  std::size_t max_message_bytes() const override { return 1; }
  std::string describe() const override { return "failed way"; }
  void add_stats(Stats&) const override {}

 private:
  const Fd event_{check(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")};
  bool begun_ = false;
  bool taken_ = false;
  mutable unsigned looks_ = 0;
};

// To a peer that is gone.
std::unique_ptr<ChannelCore> core_of_the_dead() {
  std::array<int, 2> ends{};
  check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), "socketpair");
  const Fd peer(ends[1]);
  Connection connection;
  connection.stream = plain_stream(Fd(ends[0]));
  connection.transport = std::make_unique<FailedWay>();
  connection.transport_name = "chunked";
  connection.peer_address = "the dead";
  Settings settings;
  settings.timeout = hang_limit();
  return std::make_unique<ChannelCore>(std::move(connection), settings);
}

TEST(Resuming, ReceiveWaitsForItsEndBeforeItCallsThePeerDead) {
  const auto core = core_of_the_dead();
  const Message message = core->receive(0);
  ASSERT_EQ(message.size(), 1u);
  EXPECT_EQ(message.bytes()[0], std::byte{42});
  EXPECT_NE(error_of(ErrorCode::kPeerDied, [&] { (void)core->receive(0); }), "no error");
}

TEST(Resuming, TryReceiveSaysThatNothingIsThereYet) {
  const auto core = core_of_the_dead();
  (void)core->fd();  // from now on it looks at the lifeline too
  unsigned looks = 0;
  std::optional<Message> message;
  while (!message && looks < 100) {
    message = core->try_receive(0);
    ++looks;
  }
  ASSERT_TRUE(message);
  EXPECT_GT(looks, 1u);
  EXPECT_EQ(message->size(), 1u);
  EXPECT_NE(error_of(ErrorCode::kPeerDied, [&] { (void)core->try_receive(0); }), "no error");
}

}  // namespace
}  // namespace leat::detail
