// Waits on simulated machines, whose every clock tick the test makes up.
#include "base/spin_budget.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

namespace leat::detail {
namespace {

using namespace std::chrono_literals;
using Nanoseconds = std::chrono::nanoseconds;

constexpr Nanoseconds kTry = 15ns;
constexpr Nanoseconds kSleep = 4us;  // to sleep and to be woken, on one core
constexpr auto kMost = 50us;

// The machine of the test that runs; time passes by what is done on it.
struct MadeUp {
  static inline Clock::time_point time{1h};
  static inline std::function<void()> on_yield;
  static inline int looks = 0;
  static inline int yields = 0;

  static Clock::time_point now() noexcept {
    ++looks;
    return time += 20ns;
  }
  static void pause() noexcept { time += 15ns; }
  static void yield() noexcept {
    ++yields;
    on_yield();
  }
};

struct Waited {
  bool slept = false;
  Nanoseconds took{0};
  int looks = 0;
  int yields = 0;
};

// What a waiter waits for: whether it has come, at that point of time since the wait began.
using Comes = std::function<bool(Nanoseconds)>;

Waited wait(SpinBudget& budget, std::chrono::microseconds most, const Comes& has_come,
            Nanoseconds each_try = kTry, Nanoseconds sleep = kSleep) {
  const auto start = MadeUp::time;
  MadeUp::looks = MadeUp::yields = 0;
  Waited waited{.slept = true};
  for (BasicSpin<MadeUp> spin(budget, most); waited.slept && spin.again();) {
    MadeUp::time += each_try;
    if (!has_come(MadeUp::time - start)) continue;
    spin.found();
    waited.slept = false;
  }
  if (waited.slept) MadeUp::time += sleep;
  waited.took = MadeUp::time - start;
  waited.looks = MadeUp::looks;
  waited.yields = MadeUp::yields;
  return waited;
}

// In a thread that has learnt nothing.
class Waits : public testing::Test {
 protected:
  static void in_new_thread(const std::function<void()>& body) {
    MadeUp::on_yield = [] { MadeUp::time += 250ns; };  // nobody takes the core
    std::thread(body).join();
  }
  static Comes after(Nanoseconds time) {
    return [time](Nanoseconds passed) { return passed >= time; };
  }
  static bool never(Nanoseconds) { return false; }
};

TEST_F(Waits, WhatComesAtOnceCostsNoLookAtTheClockAndNoYield) {
  in_new_thread([] {
    SpinBudget budget;
    for (int i = 0; i < 1000; ++i) {
      const Waited waited = wait(budget, kMost, after(300ns));
      EXPECT_FALSE(waited.slept);
      EXPECT_EQ(waited.looks, 0);
      EXPECT_EQ(waited.yields, 0);
    }
  });
}

TEST_F(Waits, WithACoreEachTheySpinAndSeldomYield) {
  in_new_thread([] {
    SpinBudget budget;
    for (int i = 0; i < 10; ++i) wait(budget, kMost, never);  // even if they had to sleep before
    for (int i = 0; i < 500; ++i) wait(budget, kMost, after(20us));
    for (int i = 0; i < 100; ++i) {
      const Waited waited = wait(budget, kMost, after(20us));
      EXPECT_FALSE(waited.slept);
      EXPECT_LE(waited.yields, 3);
    }
  });
}

TEST_F(Waits, WithThePeerOnTheSameCoreTheyYieldToIt) {
  in_new_thread([] {
    bool answered = false;
    MadeUp::on_yield = [&] {
      MadeUp::time += 2us;
      answered = true;
    };
    SpinBudget budget;
    int sleeps = 0;
    for (int i = 0; i < 1000; ++i) {
      answered = false;
      const Waited waited = wait(budget, kMost, [&](Nanoseconds) { return answered; });
      sleeps += waited.slept ? 1 : 0;
      if (i == 0) continue;
      EXPECT_LT(waited.took, kSleep) << i;
      if (i < 10) continue;
      EXPECT_LT(waited.took, 2200ns) << i;
    }
    EXPECT_LE(sleeps, 1);
  });
}

TEST_F(Waits, APeerThatSpinsForItsTrialIsNotTakenForAnotherProgram) {
  in_new_thread([] {
    bool answered = false;
    MadeUp::on_yield = [&] {
      MadeUp::time += kMost + 5us;
      answered = true;
    };
    SpinBudget budget;
    int sleeps = 0;
    for (int i = 0; i < 1000; ++i) {
      answered = false;
      sleeps += wait(budget, kMost, [&](Nanoseconds) { return answered; }).slept ? 1 : 0;
    }
    EXPECT_LE(sleeps, 1);
  });
}

TEST_F(Waits, ACoreThatAnotherProgramWouldKeepIsSeldomYielded) {
  in_new_thread([] {
    MadeUp::on_yield = [] { MadeUp::time += 3ms; };
    SpinBudget budget;
    wait(budget, kMost, never);
    const auto start = MadeUp::time;
    constexpr int kWaits = 100'000;
    for (int i = 0; i < kWaits; ++i) wait(budget, kMost, never);
    EXPECT_LT((MadeUp::time - start) / kWaits, kSleep * 12 / 10);
  });
}

TEST_F(Waits, WhereNeitherHelpsTheySleepAtOnce) {
  in_new_thread([] {
    SpinBudget budget;
    for (int i = 0; i < 20; ++i) wait(budget, kMost, never);
    const auto start = MadeUp::time;
    constexpr int kWaits = 10'000;
    for (int i = 0; i < kWaits; ++i) EXPECT_TRUE(wait(budget, kMost, never).slept);
    EXPECT_LT((MadeUp::time - start) / kWaits, kSleep * 12 / 10);
  });
}

TEST_F(Waits, TheyNoticeThatSpinningPaysAgain) {
  in_new_thread([] {
    for (const Nanoseconds time : {Nanoseconds(300), Nanoseconds(20'000)}) {
      SpinBudget budget;
      for (int i = 0; i < 1000; ++i) wait(budget, kMost, never);
      for (int i = 0; i < 500; ++i) wait(budget, kMost, after(time));
      for (int i = 0; i < 100; ++i)
        EXPECT_FALSE(wait(budget, kMost, after(time)).slept) << time.count();
    }
  });
}

TEST_F(Waits, ANewWaiterBeginsWithWhatItsThreadHasLearnt) {
  in_new_thread([] {
    {
      SpinBudget budget;
      for (int i = 0; i < 100; ++i) wait(budget, kMost, never);
    }
    const auto start = MadeUp::time;
    for (int i = 0; i < 100; ++i) {
      SpinBudget budget;
      wait(budget, kMost, never);
    }
    EXPECT_LT((MadeUp::time - start) / 100, kSleep * 13 / 10);
  });
}

TEST_F(Waits, DearTriesAreFewerBetweenLooksAtTheClock) {
  in_new_thread([] {
    SpinBudget budget;
    wait(budget, kMost, never, 400ns);
    MadeUp::looks = 0;
    BasicSpin<MadeUp> spin(budget, 1h);
    int tries = 0;
    while (spin.again() && !spin.looked()) ++tries;
    EXPECT_LE(tries, 4);
  });
}

TEST_F(Waits, ZeroNeverTries) {
  in_new_thread([] {
    SpinBudget budget;
    for (int i = 0; i < 100; ++i) EXPECT_FALSE(BasicSpin<MadeUp>(budget, 0us).again());
  });
}

TEST_F(Waits, EndlessOnesGoOnAndYieldToo) {
  in_new_thread([] {
    SpinBudget budget;
    for (int i = 0; i < 10; ++i) wait(budget, kMost, never);
    const Waited waited = wait(budget, -1us, after(100ms));
    EXPECT_FALSE(waited.slept);
    EXPECT_GT(waited.yields, 1000);
  });
}

}  // namespace
}  // namespace leat::detail
