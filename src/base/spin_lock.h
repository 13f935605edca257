// A lock for a few dozen instructions between two threads that rarely meet. BasicLockable.
#pragma once

#include <sched.h>

#include <atomic>

namespace leat::detail {

class SpinLock {
 public:
  void lock() noexcept {
    for (unsigned spins = 0; !try_lock(); ++spins) {
      // The holder may have lost its core; give it this one.
      if (spins >= kSpinsBeforeYield) sched_yield();
    }
  }
  bool try_lock() noexcept {
    return !locked_.load(std::memory_order_relaxed) &&
           !locked_.exchange(true, std::memory_order_acquire);
  }
  void unlock() noexcept { locked_.store(false, std::memory_order_release); }

 private:
  static constexpr unsigned kSpinsBeforeYield = 64;

  std::atomic<bool> locked_{false};
};

}  // namespace leat::detail
