// Waits on simulated machines, whose every clock tick the test makes up.
#include "base/spin_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
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
  static inline thread_local ThreadWaits of_this_thread;
  static inline ThreadWaits* waits = nullptr;  // of the side that is simulated; else the thread's

  static ThreadWaits& thread_waits() noexcept { return waits != nullptr ? *waits : of_this_thread; }
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

// --- Two sides with a core each, which answer one another.

class PingPong {
 public:
  // `work`: from a message's arrival to its answer. `wake`: from a message to the end of the sleep
  // of its receiver. Both sides have slept so often that they no longer spin.
  PingPong(Nanoseconds work, Nanoseconds wake) : work_(work), wake_(wake) {
    for (Side& side : sides_) {
      in_place_of(side, [&] {
        for (int i = 0; i < 50'000; ++i)
          wait(side.budget, kMost, [](Nanoseconds) { return false; });
      });
    }
    sides_[0].time = sides_[1].time = std::max(sides_[0].time, sides_[1].time) + wake_;
    sides_[0].mail = sides_[0].time;  // it wakes up
    sides_[1].time = kNotYet;
  }

  void run_for(Nanoseconds time) {
    for (const auto end = std::min(sides_[0].time, sides_[1].time) + time;
         std::min(sides_[0].time, sides_[1].time) < end;)
      step();
  }
  // The share of the messages for which a receiver slept, since the last call.
  double slept() {
    const double share = static_cast<double>(sleeps_) / messages_;
    sleeps_ = messages_ = 0;
    return share;
  }

 private:
  static constexpr auto kNotYet = Clock::time_point::max();
  struct Side {
    ThreadWaits waits;
    SpinBudget budget;
    Clock::time_point time = MadeUp::time;  // while asleep: when it wakes up
    Clock::time_point mail = kNotYet;       // when the message came that it waits for
    std::optional<BasicSpin<MadeUp>> spin;  // none while asleep
  };

  // What happens at a side takes that side's time only.
  static void in_place_of(Side& side, const std::function<void()>& body) {
    MadeUp::waits = &side.waits;
    MadeUp::time = side.time;
    body();
    side.time = MadeUp::time;
    MadeUp::waits = nullptr;
  }

  void step() {
    const bool first = sides_[0].time <= sides_[1].time;
    Side& side = sides_[first ? 0 : 1];
    Side& peer = sides_[first ? 1 : 0];
    in_place_of(side, [&] {
      if (side.spin && !side.spin->again()) {
        side.spin.reset();
        ++sleeps_;
        MadeUp::time = side.mail == kNotYet ? kNotYet : std::max(MadeUp::time, side.mail) + wake_;
        return;
      }
      MadeUp::time += kTry;
      if (side.mail > MadeUp::time) return;
      if (side.spin) side.spin->found();
      ++messages_;
      side.mail = kNotYet;
      MadeUp::time += work_;
      peer.mail = MadeUp::time;
      if (!peer.spin) peer.time = MadeUp::time + wake_;
      side.spin.emplace(side.budget, kMost);
    });
  }

  const Nanoseconds work_;
  const Nanoseconds wake_;
  Side sides_[2];
  int sleeps_ = 0;
  int messages_ = 0;
};

TEST_F(Waits, TwoThatSleepFindOutThatSpinningPays) {
  in_new_thread([] {
    for (const Nanoseconds work : {100ns, 700ns, 1500ns, 6000ns}) {
      for (const Nanoseconds wake : {5us, 25us, 75us, 150us}) {
        PingPong pair(work, wake);
        pair.run_for(50ms);
        (void)pair.slept();
        pair.run_for(1ms);
        EXPECT_EQ(pair.slept(), 0) << work.count() << " ns of work, woken in " << wake.count();
      }
    }
  });
}

}  // namespace
}  // namespace leat::detail
