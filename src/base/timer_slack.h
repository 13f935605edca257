// The kernel may end a sleep of this thread late by its timer slack, so as to wake several at a
// time: by default 50 microseconds, which is longer than leat's shortest sleeps.
#pragma once

#include <sys/prctl.h>

#include <chrono>
#include <cstdint>

namespace leat::detail {

// Sets the slack of the constructing thread, for the lifetime of this object.
class TimerSlack {
 public:
  explicit TimerSlack(std::chrono::nanoseconds slack) noexcept : before_(prctl(PR_GET_TIMERSLACK)) {
    if (before_ > 0) set(slack.count());
  }
  ~TimerSlack() {
    if (before_ > 0) set(before_);
  }
  TimerSlack(const TimerSlack&) = delete;
  TimerSlack& operator=(const TimerSlack&) = delete;

 private:
  static void set(std::int64_t slack) noexcept {
    prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack));
  }

  const int before_;  // negative: unknown, larger than an int holds
};

}  // namespace leat::detail
