// Decides how a wait spins: how long before it sleeps, and when it yields its core. It learns both.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/clock.h"
#include "base/pause.h"
#include "base/spin_trials.h"

namespace leat::detail {

// What a thread has learnt in all its waits, in nanoseconds and points of time of the clock.
class ThreadWaits {
 private:
  template <typename Machine>
  friend class BasicSpin;

  std::int64_t longest_ = INT64_MAX;   // how long spinning paid last; for new waiters
  std::int64_t yield_after_ = 50'000;  // of spinning, before a yield
  std::int64_t no_yield_until_ = 0;
  SpinTrials trials_;
};

// What the waits of one waiter have learnt. Threads: any; they share it. Both words are guesses and
// order nothing, so they are relaxed.
class SpinBudget {
 private:
  template <typename Machine>
  friend class BasicSpin;
  static constexpr std::int64_t kNew = -1;

  std::atomic<std::int64_t> longest_{kNew};  // nanoseconds for which spinning pays
  std::atomic<std::uint32_t> tries_{32};     // in a microsecond
};

// The spinning of one wait:
//
//   for (Spin spin(budget, most); spin.again();)
//     if (it_has_come()) return spin.found();
//
// If waiter and peer have a core each, spinning is quickest, and most news comes within the first
// microsecond, during which the waiter does not look at the clock.
//
// If they share a core, spinning keeps the peer from answering, and yielding to it is quickest. So
// after a wait that had to sleep, the next one yields once that microsecond is over, and later ones
// before their first try, as long as a yield gives the core away and it soon comes back. While no
// thread takes the core, yields become rare. A core that stays away for long was taken by a program
// that uses up its time slices. Then sleeping is quicker, because the kernel lets a thread that it
// wakes run first; so no yield follows before a multiple of the lost time has passed.
//
// If neither helps, the time for spinning halves with each wait that had to sleep after all, until
// waits sleep at once; now and then one tries whether spinning pays again (SpinTrials). Success
// raises the time for spinning to twice the time it took.
template <typename Machine>
class BasicSpin {
 public:
  using Time = Clock::time_point;

  // `most`: the setting spin_us. Zero: do not spin. Negative: without limit.
  BasicSpin(SpinBudget& budget, std::chrono::nanoseconds most) noexcept
      : budget_(budget), most_(most.count() < 0 ? kUnlimited : most.count()) {
    if (most_ == 0) return;
    longest_ = most_ == kUnlimited ? kUnlimited : allowed();
    if (longest_ == 0) return;
    tries_ = budget_.tries_.load(std::memory_order_relaxed);
    left_ = thread_.yield_after_ == kNotEvenTries ? 0 : tries_;
  }

  // To be called before each try: whether to make it.
  bool again() noexcept {
    looked_ = false;
    if (left_ != 0) [[likely]] {
      --left_;
      if (started_) Machine::pause();
      return true;
    }
    return longest_ != 0 && look();
  }

  // To be called when the last try has succeeded.
  void found() noexcept {
    if (trial_ != SpinTrials::Kind::kNone) thread_.trials_.won();
    const Nanoseconds enough = started_ ? 2 * (between(start_, now_) + kAtOnce) : kAtOnce;
    if (budget_.longest_.load(std::memory_order_relaxed) < enough) learn_longest(enough);
  }

  // Whether it looked at the clock before this try, and the time that it saw.
  bool looked() const noexcept { return looked_; }
  Time now() const noexcept { return now_; }
  // The time from its first look at the clock to its last.
  std::chrono::nanoseconds took() const noexcept { return now_ - start_; }

 private:
  using Nanoseconds = std::int64_t;

  static constexpr Nanoseconds kUnlimited = INT64_MAX;
  // The time of the tries before the first look at the clock, and between two looks.
  static constexpr Nanoseconds kAtOnce = 1'000;
  static constexpr std::uint32_t kMostTries = 64;
  static constexpr Nanoseconds kGaveCore = 1'000;  // one that no thread takes is back sooner
  // A core that comes back later was taken by another program, for a time slice. A peer that tries
  // whether spinning pays keeps it for up to four times spin_us, 200 us by default.
  static constexpr Nanoseconds kLostCore = 300'000;
  // Spinning before a yield: not even the first tries; while no thread takes it, first and longest.
  static constexpr Nanoseconds kNotEvenTries = -1;
  static constexpr Nanoseconds kFirstPause = 500, kLongestPause = 8'000;
  // Less than this counts as nothing: a wait with such a limit makes the first tries only.
  static constexpr Nanoseconds kLeast = SpinTrials::kFirstTries;

  static Nanoseconds between(Time from, Time to) noexcept {
    return std::chrono::nanoseconds(to - from).count();
  }
  static Nanoseconds point(Time time) noexcept { return between(Time{}, time); }

  Nanoseconds allowed() noexcept {
    Nanoseconds longest = budget_.longest_.load(std::memory_order_relaxed);
    if (longest == SpinBudget::kNew) {
      longest = thread_.longest_;
      budget_.longest_.store(longest, std::memory_order_relaxed);
    }
    if (longest != 0) return std::clamp(longest, kLeast, most_);
    start_ = Machine::now();
    const Nanoseconds trial = thread_.trials_.begin_wait(point(start_), most_);
    if (trial != 0) trial_ = SpinTrials::Kind::kBrief;
    return trial;
  }

  void learn_longest(Nanoseconds longest) noexcept {
    budget_.longest_.store(longest, std::memory_order_relaxed);
    thread_.longest_ = longest;
  }

  bool look() noexcept {
    now_ = Machine::now();
    looked_ = true;
    if (!started_) {
      started_ = true;
      before_look_ = start_ == Time{} ? kAtOnce : std::max(kAtOnce, between(start_, now_));
      start_ = yielded_at_ = now_;
      if (longest_ != kUnlimited && thread_.trials_.long_one_is_due(point(now_))) {
        trial_ = SpinTrials::Kind::kLong;
        longest_ = thread_.trials_.long_one(most_);
      }
    } else {
      learn_tries(between(batch_at_, now_));
    }
    // A wait with a limit below the first tries ends with them.
    if (longest_ < kAtOnce || between(start_, now_) >= longest_) {
      lose();
      return false;
    }
    const bool long_ago = between(yielded_at_, now_) >= thread_.yield_after_;
    if (long_ago && point(now_) >= thread_.no_yield_until_) yield();
    batch_at_ = now_;
    left_ = tries_ - 1;
    return true;
  }

  void yield() noexcept {
    Machine::yield();
    const Time back = Machine::now();
    const Nanoseconds away = between(now_, back);
    yielded_at_ = now_ = back;
    yielded_ = true;
    Nanoseconds& after = thread_.yield_after_;
    if (away < kGaveCore) {
      after = std::clamp(2 * after, kFirstPause, kLongestPause);
    } else if (away < kLostCore) {
      after = after <= 0 ? kNotEvenTries : after <= kFirstPause ? 0 : after / 2;
    } else {
      after = std::max(after, Nanoseconds{0});
      thread_.no_yield_until_ = point(back) + SpinTrials::kPayBack * away;
    }
  }

  void learn_tries(Nanoseconds took) noexcept {
    if (took < kAtOnce / 2) tries_ = std::min(2 * tries_, kMostTries);
    if (took > 2 * kAtOnce) tries_ = std::max(tries_ / 2, 1U);
    budget_.tries_.store(tries_, std::memory_order_relaxed);
  }

  // The wait must sleep.
  void lose() noexcept {
    const Nanoseconds before = budget_.longest_.load(std::memory_order_relaxed);
    const Nanoseconds half = std::min(before, longest_) / 2;
    learn_longest(half < kLeast ? 0 : half);
    thread_.trials_.lost(trial_, point(now_), before_look_ + between(start_, now_));
    if (!yielded_) thread_.yield_after_ = 0;
    longest_ = 0;
  }

  SpinBudget& budget_;
  ThreadWaits& thread_ = Machine::thread_waits();
  const Nanoseconds most_;
  Nanoseconds longest_ = 0;  // limit of this wait; zero: it is over
  SpinTrials::Kind trial_ = SpinTrials::Kind::kNone;
  Nanoseconds before_look_ = 0;  // the time that the tries before the first look at the clock took
  std::uint32_t tries_ = 0;
  std::uint32_t left_ = 0;                 // tries before the next look at the clock
  bool started_ = false, looked_ = false;  // at the clock: ever, just now
  bool yielded_ = false;
  Time start_{}, now_{}, yielded_at_{}, batch_at_{};
};

struct ThisMachine {
  static inline constinit thread_local ThreadWaits waits{};
  static ThreadWaits& thread_waits() noexcept { return waits; }
  static Clock::time_point now() noexcept { return Clock::now(); }
  static void pause() noexcept { detail::pause(); }
  static void yield() noexcept { sched_yield(); }
};
using Spin = BasicSpin<ThisMachine>;

}  // namespace leat::detail
