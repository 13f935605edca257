// How late the kernel may end a sleep of this thread, so that it wakes for several at a time: 50
// microseconds if nobody has set it, which is longer than the shortest of our sleeps.
#pragma once

#include <sys/prctl.h>

#include <chrono>
#include <cstdint>

namespace leat::detail {

// Sets it for as long as this lives, in the thread that made it.
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
