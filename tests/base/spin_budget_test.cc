#include "base/spin_budget.h"

#include <gtest/gtest.h>

namespace leat::detail {
namespace {

using namespace std::chrono_literals;

// How many of the next 64 waits, one of which tries, may spin so long.
int waits_that_may(SpinBudget& budget, std::chrono::nanoseconds spin) {
  int count = 0;
  for (int i = 0; i < 64; ++i) count += budget.next() >= spin;
  return count;
}

TEST(SpinBudgetTest, waits_get_short_where_spinning_does_not_pay_and_long_where_it_does) {
  SpinBudget budget(50us);
  EXPECT_EQ(waits_that_may(budget, 50us), 64);
  for (int i = 0; i < 20; ++i) budget.learn(false);
  EXPECT_EQ(waits_that_may(budget, 1us), 1) << "the one that tries";
  for (int i = 0; i < 20; ++i) budget.learn(true);
  EXPECT_EQ(waits_that_may(budget, 50us), 64);
  EXPECT_EQ(waits_that_may(budget, 51us), 0);
}

TEST(SpinBudgetTest, zero_and_endless_stay_what_they_are) {
  SpinBudget none(0us), endless(-1us);
  for (int i = 0; i < 100; ++i) {
    none.learn(i % 2 == 0);
    endless.learn(i % 2 == 0);
  }
  EXPECT_EQ(waits_that_may(none, 1ns), 0);
  EXPECT_FALSE(none.endless());
  EXPECT_TRUE(endless.endless());
}

}  // namespace
}  // namespace leat::detail
