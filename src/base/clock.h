// Time for deadlines: one monotonic clock, so that a change of the wall clock moves no deadline.
#pragma once

#include <chrono>

namespace leat::detail {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

inline constexpr Deadline kNoDeadline = Deadline::max();

// The time `timeout` from now; a negative timeout means never.
inline Deadline deadline_after(std::chrono::nanoseconds timeout) {
  const auto now = Clock::now();
  if (timeout < std::chrono::nanoseconds::zero() || timeout > kNoDeadline - now) return kNoDeadline;
  return now + std::chrono::duration_cast<Clock::duration>(timeout);
}

inline bool passed(Deadline deadline) {
  return deadline != kNoDeadline && Clock::now() >= deadline;
}

// The timeout argument of poll(2): milliseconds rounded up, -1 for no deadline, at most a minute
// (callers loop).
inline int poll_timeout_ms(Deadline deadline) {
  if (deadline == kNoDeadline) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  if (left <= 0) return 0;
  return left > 60'000 ? 60'000 : static_cast<int>(left);
}

}  // namespace leat::detail
