// epoll_pwait2(2), also where there is none.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>

#include "preload/epoll_set.h"
#include "preload/real.h"

namespace leat::preload {
namespace {

// Whether the kernel (before 5.11) or the C library (before 2.35) has no epoll_pwait2. Relaxed:
// a thread that does not know it yet finds it out itself.
std::atomic<bool> is_missing{false};

// Rounded up: the wait must not end before its time.
int milliseconds(const timespec& time) {
  if (time.tv_sec >= INT_MAX / 1000) return INT_MAX;
  return static_cast<int>(time.tv_sec * 1000 + (time.tv_nsec + 999'999) / 1'000'000);
}

}  // namespace

int wait_in_kernel(int epoll_fd, epoll_event* events, int most, const timespec* timeout,
                   const sigset_t* mask) {
  if (!is_missing.load(std::memory_order_relaxed) && real().epoll_pwait2 != nullptr) {
    const int got = real().epoll_pwait2(epoll_fd, events, most, timeout, mask);
    if (got >= 0 || errno != ENOSYS) return got;
    is_missing.store(true, std::memory_order_relaxed);
  }
  return real().epoll_pwait(epoll_fd, events, most,
                            timeout != nullptr ? milliseconds(*timeout) : -1, mask);
}

}  // namespace leat::preload
