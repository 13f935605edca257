// The doorbell of transport batched: whatever the order of steps, no message waits for a receiver
// that sleeps, and a quiet one sleeps.
#include "transport/batched/doorbell.h"

#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <random>

#include "support/scale.h"

namespace leat::detail {
namespace {

using Step = DoorbellReceiver::Step;

// Sender and receiver with their devices between them. Each step does one thing, chosen at random.
// The receiver's two requests, writing the limit and reading, are executed in order; bells and
// messages arrive late, bits later than messages. `shared`: where memory is, the sender's number
// stays in its store buffer for a while, though it looked at the limit meanwhile; only a barrier of
// the receiver's drives it out.
class World {
 public:
  World(std::uint64_t seed, bool quick, bool shared)
      : random_(seed), quick_(quick), shared_(shared), receiver_(shared) {}

  void run(std::uint32_t messages) {
    std::uint64_t steps = 0;
    while (arrived_ < messages || !asleep_) {
      ASSERT_LT(++steps, 1'000'000u) << "arrived " << arrived_ << ", asleep " << asleep_;
      switch (random_() % 7) {
        case 6:
          if (random_() % 8 == 0) visible_ = posted_;
          break;
        case 0:
          if (posted_ < messages || checks_ != 0) send();
          break;
        case 1:
          // An echo came back; or the store of the flip is visible, which is before the number's.
          if (shared_) {
            flipped_ = posted_;
          } else if (flipped_ < posted_ && checks_ == 0) {
            ++flipped_;
          }
          break;
        case 2:
          execute();
          break;
        case 3:
          hear();
          break;
        default:
          if (!asleep_) look();
      }
      if (asleep_ && wakes_.empty() && to_execute_.empty() && checks_ == 0) {
        ASSERT_EQ(arrived_, posted_) << "it sleeps while a message waits";
      }
    }
  }
  std::uint64_t reads() const { return reads_; }
  std::uint64_t bells() const { return bells_; }

 private:
  // First the message, with a bell if there is one; then its number; then one more look.
  void send() {
    if (checks_ == 0) {
      ASSERT_TRUE(sender_.see(limit_));
      const bool bell = sender_.may_notify();
      if (bell) {
        sender_.notify();
        ++bells_;
        wakes_.push_back(posted_ + 1);
      }
      ++posted_;
      checks_ = bell ? 0 : 1;
    } else {
      ASSERT_TRUE(sender_.see(limit_));
      if (sender_.may_notify()) {
        sender_.notify();
        ++bells_;
        wakes_.push_back(posted_);
      }
      checks_ = 0;
    }
  }

  void execute() {
    if (to_execute_.empty()) return;
    const std::optional<std::uint32_t> limit = to_execute_.front();
    to_execute_.pop_front();
    if (limit) {
      limit_ = *limit;
    } else {
      read_ =
          shared_ ? Snapshot{visible_, std::max(flipped_, visible_)} : Snapshot{posted_, flipped_};
    }
  }

  void hear() {
    if (wakes_.empty()) return;
    // It names a message; only if that is the next one it is found by it.
    const bool found = wakes_.front() == arrived_ + 1;
    if (found) ++arrived_;
    visible_ = std::max(visible_, wakes_.front());  // stored before the doorbell
    wakes_.pop_front();
    ASSERT_TRUE(receiver_.notified(found, random_() % 2 == 0));
    asleep_ = false;
  }

  void look() {
    if (read_) {
      arrived_ = std::max(arrived_, read_->flipped);
      receiver_.read_done(read_->posted, arrived_, quick_);
      read_.reset();
    }
    const Step step = receiver_.next(arrived_);
    if (step == Step::kRead) {
      to_execute_.push_back(std::nullopt);
      receiver_.read_posted();
      ++reads_;
    } else if (step == Step::kAllow || (!receiver_.reading() && !receiver_.allowed())) {
      to_execute_.push_back(receiver_.allow());
      if (!shared_) receiver_.fenced();
    } else if (shared_ && to_execute_.empty() && receiver_.allowed() && !receiver_.checked() &&
               random_() % 4 == 0) {
      visible_ = posted_;  // it wants to sleep: all processors pass a barrier
      receiver_.fenced();
    } else if (receiver_.may_sleep(arrived_) && random_() % 2 == 0) {
      asleep_ = true;
    }
  }

  struct Snapshot {
    std::uint32_t posted, flipped;
  };

  std::mt19937_64 random_;
  const bool quick_;
  const bool shared_;
  DoorbellSender sender_;
  std::uint32_t limit_ = 0;  // in the sender's memory
  std::uint32_t posted_ = 0;
  std::uint32_t visible_ = 0;  // what a read shows of posted_, where memory is shared
  std::uint32_t flipped_ = 0;
  int checks_ = 0;                                       // the sender is between its two looks
  std::deque<std::optional<std::uint32_t>> to_execute_;  // a limit to write, or a read
  std::optional<Snapshot> read_;
  std::deque<std::uint32_t> wakes_;
  DoorbellReceiver receiver_;
  std::uint32_t arrived_ = 0;
  bool asleep_ = false;
  std::uint64_t reads_ = 0;
  std::uint64_t bells_ = 0;
};

TEST(Doorbell, NoScheduleLeavesAMessageToASleeper) {
  std::uint64_t bells = 0;
  for (std::uint64_t seed = 0; seed < scaled(50'000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed, seed % 64 == 0, seed % 2 == 1);
    ASSERT_NO_FATAL_FAILURE(world.run(20));
    bells += world.bells();
  }
  EXPECT_GT(bells, 0u);
}

TEST(Doorbell, QuietReceiverReadsNoMore) {
  DoorbellReceiver receiver;
  int reads = 0;
  int allowances = 0;
  for (int poll = 0; poll < 100'000; ++poll) {
    const Step step = receiver.next(0);
    if (step == Step::kRead) {
      ++reads;
      receiver.read_posted();
      receiver.read_done(0, 0, false);
    } else if (step == Step::kAllow) {
      ++allowances;
      receiver.allow();
      receiver.fenced();
    }
  }
  EXPECT_LE(reads, 3);
  EXPECT_EQ(allowances, 1);
  EXPECT_TRUE(receiver.may_sleep(0));
}

TEST(Doorbell, SleepsOnlyAfterABarrier) {
  DoorbellReceiver receiver(true);
  receiver.allow();
  for (int poll = 0; poll < 1000; ++poll) {
    if (receiver.next(0) != Step::kRead) continue;
    receiver.read_posted();
    receiver.read_done(0, 0, true);
  }
  EXPECT_FALSE(receiver.may_sleep(0));
  receiver.fenced();
  ASSERT_EQ(receiver.next(0), Step::kRead);
  receiver.read_posted();
  receiver.read_done(0, 0, true);
  EXPECT_TRUE(receiver.may_sleep(0));
}

// Two were posted, the second one had a doorbell and the first one, of another context, had none;
// the read that followed showed neither.
TEST(Doorbell, DoesNotSleepWhileOneBeforeWhatItFoundIsMissing) {
  DoorbellReceiver receiver;
  receiver.allow();
  receiver.fenced();
  receiver.read_posted();
  ASSERT_TRUE(receiver.notified(true, false));
  receiver.learned(2);
  receiver.read_done(2, 1, false);  // what was found tells more than an older number
  EXPECT_FALSE(receiver.may_sleep(1));
  ASSERT_EQ(receiver.next(1), Step::kRead);
  receiver.read_posted();
  receiver.read_done(2, 2, false);
  EXPECT_TRUE(receiver.may_sleep(2));
  receiver.learned(1);
  EXPECT_EQ(receiver.posted(), 2U) << "an older number tells nothing";
}

TEST(Doorbell, RenewsInAConversationBeforeTheLastRing) {
  DoorbellReceiver receiver(true);
  std::uint32_t limit = receiver.allow();
  for (std::uint32_t count = 1; count <= 100; ++count) {
    for (int poll = 0; poll < 20; ++poll)
      if (receiver.next(count) == Step::kAllow) limit = receiver.allow();
    ASSERT_TRUE(receiver.notified(true, true));
    ASSERT_GT(limit, count) << "the sender may not notify any more";
  }
}

TEST(Doorbell, MoreThanAllowedAreRefused) {
  DoorbellReceiver receiver;
  EXPECT_FALSE(receiver.notified(true, false));
  receiver.allow();
  for (unsigned i = 0; i < DoorbellReceiver::kAllowance; ++i)
    EXPECT_TRUE(receiver.notified(true, false));
  EXPECT_FALSE(receiver.notified(true, false));
}

TEST(Doorbell, ImpossibleLimitIsRefused) {
  DoorbellSender sender;
  EXPECT_FALSE(sender.see(DoorbellReceiver::kAllowance + 1));
  EXPECT_FALSE(sender.see(~0u));
  ASSERT_TRUE(sender.see(2));
  sender.notify();
  EXPECT_TRUE(sender.may_notify());
  EXPECT_FALSE(sender.see(0)) << "a doorbell cannot be taken back";
}

}  // namespace
}  // namespace leat::detail
