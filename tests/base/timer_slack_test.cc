// Naps lower the timer slack of the thread, which belongs to the program.
#include "base/timer_slack.h"

#include <gtest/gtest.h>

namespace leat::detail {
namespace {

TEST(TimerSlack, IsAsItWasAfterwards) {
  constexpr int kOwn = 12'345;
  ASSERT_EQ(prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(kOwn)), 0);
  {
    const TimerSlack slack(std::chrono::microseconds(2));
    EXPECT_EQ(prctl(PR_GET_TIMERSLACK), 2'000);
  }
  EXPECT_EQ(prctl(PR_GET_TIMERSLACK), kOwn);
}

}  // namespace
}  // namespace leat::detail
