// Waits for a set of epoll in the kernel.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <ctime>

namespace leat::posix {

// Whether the kernel has no epoll_pwait2, as before 5.11. Relaxed: a thread that does not know it
// yet finds it out itself.
inline std::atomic<bool> kernel_lacks_epoll_pwait2{false};

// epoll_pwait2(2), by epoll_pwait(2) where the kernel or the C library (before 2.35: `pwait2` is
// null) lacks it: then the time is rounded up to milliseconds, as the wait must not end before it.
// -1 and errno.
template <typename Pwait2, typename Pwait>
int wait_for_events(Pwait2* pwait2, Pwait* pwait, int epoll_fd, epoll_event* events, int most,
                    const timespec* timeout, const sigset_t* mask) {
  if (pwait2 != nullptr && !kernel_lacks_epoll_pwait2.load(std::memory_order_relaxed)) {
    const int got = pwait2(epoll_fd, events, most, timeout, mask);
    if (got >= 0 || errno != ENOSYS) return got;
    kernel_lacks_epoll_pwait2.store(true, std::memory_order_relaxed);
  }
  int milliseconds = -1;
  if (timeout != nullptr)
    milliseconds =
        timeout->tv_sec >= INT_MAX / 1000
            ? INT_MAX
            : static_cast<int>(timeout->tv_sec * 1000 + (timeout->tv_nsec + 999'999) / 1'000'000);
  return pwait(epoll_fd, events, most, milliseconds, mask);
}

}  // namespace leat::posix
