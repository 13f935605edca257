// The times that programs give and get, as deadlines.
#pragma once

#include <sys/time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <limits>

#include "base/clock.h"

namespace leat::posix {

using detail::Clock;
using detail::Deadline;
using detail::kNoDeadline;
using detail::passed;

inline constexpr std::int64_t kNsPerSecond = 1'000'000'000;

inline timespec to_timespec(std::chrono::nanoseconds time) {
  return {.tv_sec = time.count() / kNsPerSecond, .tv_nsec = time.count() % kNsPerSecond};
}

// False: one that the kernel refuses (EINVAL).
inline bool is_time(const timespec* time) {
  return time == nullptr ||
         (time->tv_sec >= 0 && time->tv_nsec >= 0 && time->tv_nsec < kNsPerSecond);
}

// select(2)'s, in which more microseconds than a second has are seconds. One that is negative is no
// time afterwards either.
inline timespec to_timespec(const timeval& time) {
  constexpr long kUsPerSecond = 1'000'000;
  if (time.tv_sec < 0 || time.tv_usec < 0) return {.tv_sec = -1, .tv_nsec = 0};
  timespec whole{.tv_sec = 0, .tv_nsec = time.tv_usec % kUsPerSecond * 1000};
  if (__builtin_add_overflow(time.tv_sec, time.tv_usec / kUsPerSecond, &whole.tv_sec))
    whole.tv_sec = std::numeric_limits<time_t>::max();
  return whole;
}
inline timeval to_timeval(const timespec& time) {
  return {.tv_sec = time.tv_sec, .tv_usec = time.tv_nsec / 1000};
}

// poll(2)'s; a negative one is handled before.
inline timespec to_timespec(int milliseconds) {
  return {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1'000'000L};
}

inline bool is_zero(const timespec* time) {
  return time != nullptr && time->tv_sec == 0 && time->tv_nsec == 0;
}

// When a time that runs from `start` is over. No time, or one of decades, sets no deadline.
inline Deadline deadline_of(const timespec* time, Deadline start = Clock::now()) {
  if (time == nullptr || time->tv_sec >= kNsPerSecond) return kNoDeadline;
  return start + std::chrono::seconds(time->tv_sec) + std::chrono::nanoseconds(time->tv_nsec);
}

// What is left until then, at least 0.
inline timespec time_left(Deadline deadline) {
  return to_timespec(
      std::max<std::chrono::nanoseconds>(std::chrono::nanoseconds(0), deadline - Clock::now()));
}

inline std::int64_t now_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * kNsPerSecond + now.tv_nsec;
}

}  // namespace leat::posix
