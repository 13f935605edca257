// A waiter whose peer runs only while the waiter gives its core away, as where both have one core.
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "support/lone_core.h"
#include "support/scale.h"
#include "support/silent_transport.h"

namespace {

std::atomic<std::uint64_t> yields{0};

}  // namespace

// In place of the C library's: the peer takes two microseconds for its answer.
extern "C" int sched_yield() noexcept {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(2);
  while (std::chrono::steady_clock::now() < end) {
  }
  ++yields;
  return 0;
}

namespace leat::detail {
namespace {

// Has a message, or room for one, once the core was given away since the last, or the waiter is
// about to sleep.
class AnswersAYield : public SilentTransport {
 public:
  SendResult try_send(std::span<const std::byte>, Context) override {
    return whole_or_not(comes());
  }
  bool try_flush() override { return comes(); }
  ReceiveResult try_receive(Context, Delivery& delivery) override {
    delivery.bytes = 1;
    return comes() ? ReceiveResult::kMessage : ReceiveResult::kNothing;
  }
  void arm(Side) override {
    ++sleeps;
    answered_ = true;
  }

  int sleeps = 0;

 private:
  bool comes() {
    const std::uint64_t now = yields;
    const bool here = answered_ || now != seen_;
    answered_ = false;
    seen_ = now;
    return here;
  }

  bool answered_ = false;
  std::uint64_t seen_ = yields;
};

// Whether at some time so many calls in a row need no sleep. Not from the first on, and when others
// of this machine take the core for long the next ones sleep.
template <typename Call>
bool learns_to_yield(const Call& call) {
  LoneCore lone(std::make_unique<AnswersAYield>());
  auto& transport = static_cast<AnswersAYield&>(*lone.core->connection().transport);
  constexpr int kInARow = 50;
  int in_a_row = 0;
  const Deadline deadline = deadline_after(hang_limit() / 4);
  while (in_a_row < kInARow && !passed(deadline)) {
    const int before = transport.sleeps;
    call(*lone.core);
    in_a_row = transport.sleeps == before ? in_a_row + 1 : 0;
  }
  return in_a_row == kInARow;
}

TEST(Yielding, AReceiverYieldsToItsPeer) {
  EXPECT_TRUE(learns_to_yield([](ChannelCore& core) { EXPECT_EQ(core.receive(0).size(), 1U); }));
}

TEST(Yielding, ASenderWithoutRoomYieldsToItsPeer) {
  const std::byte message{1};
  EXPECT_TRUE(learns_to_yield([&](ChannelCore& core) { core.send({&message, 1}, 0); }));
}

TEST(Yielding, AFlushYieldsToThePeer) {
  EXPECT_TRUE(learns_to_yield([](ChannelCore& core) { core.flush(); }));
}

}  // namespace
}  // namespace leat::detail
