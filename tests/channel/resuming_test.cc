// A peer that died while a transport resumed: its last words still arrive.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <utility>

#include "channel/channel_core.h"
#include "support/errors.h"
#include "support/lone_core.h"
#include "support/silent_transport.h"

namespace leat::detail {
namespace {

constexpr unsigned kLooks = 3;

// The first look finds that the way has failed and begins to resume, which the peer's death ends a
// few looks later; only then is there a message, and after it an error.
class FailedWay : public SilentTransport {
 public:
  FailedWay() : SilentTransport(StreamUse::kResuming) { facts_.resuming = &resuming_; }
  ReceiveResult try_receive(Context, Delivery& delivery) override {
    resuming_ = looks_++ < kLooks;
    if (resuming_) return ReceiveResult::kNothing;
    if (std::exchange(taken_, true)) throw Error(ErrorCode::kPeerDied, "could not be resumed");
    delivery.small[0] = std::byte{42};
    delivery.bytes = 1;
    return ReceiveResult::kMessage;
  }

 private:
  std::atomic<bool> resuming_ = false;
  bool taken_ = false;
  unsigned looks_ = 0;
};

// To a peer that is gone.
std::unique_ptr<ChannelCore> core_of_the_dead() {
  return std::move(LoneCore(std::make_unique<FailedWay>()).core);
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
