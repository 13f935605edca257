// A lock that the handler of a signal may come across, and fork().
#pragma once

#include <sched.h>

#include <atomic>

namespace leat::preload {

// Its address tells this thread from all others of the process. Unlike a thread id it is the same
// in a forked child, and costs no system call. Initial-exec: reading it allocates nothing.
[[gnu::tls_model("initial-exec")]] inline thread_local constinit char this_thread = 0;

// For a few dozen instructions between threads that rarely meet, like SpinLock, but it knows its
// owner: a signal handler that interrupted the owner in its own thread must not wait for it.
class SignalSafeLock {
 public:
  bool held_here() const noexcept {
    // Relaxed: only this thread can have written its own address.
    return owner_.load(std::memory_order_relaxed) == &this_thread;
  }
  bool try_lock() noexcept {
    const void* nobody = nullptr;
    // Acquire, with the release of the last owner: we see what it did.
    return owner_.load(std::memory_order_relaxed) == nullptr &&
           owner_.compare_exchange_strong(nobody, &this_thread, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  // Waits. False, at once, if this thread holds it already.
  bool lock() noexcept {
    for (unsigned round = 0; !try_lock(); ++round) {
      if (held_here()) return false;
      // The owner may have lost its core; give it this one.
      if (round >= kRoundsBeforeYield) sched_yield();
    }
    return true;
  }
  // Also false if another thread keeps it unusually long. For what a handler may do: two handlers,
  // each of which had interrupted the owner of what the other waits for, would wait for ever.
  bool lock_soon() noexcept {
    for (unsigned round = 0; !try_lock(); ++round) {
      if (held_here() || round >= kMostRounds) return false;
      if (round >= kRoundsBeforeYield) sched_yield();
    }
    return true;
  }
  void unlock() noexcept { owner_.store(nullptr, std::memory_order_release); }

  // Before a fork: false if another thread holds it. If this one does, then a handler forks that
  // interrupted it, and both processes go on where it was.
  bool try_hold_for_fork() noexcept {
    if (held_here()) return true;
    for_fork_ = try_lock();
    return for_fork_;
  }
  bool held_for_fork() const noexcept { return for_fork_; }
  // Undoes it, after the fork or if another lock could not be taken, in the thread that tried.
  void let_go_after_fork() noexcept {
    if (!for_fork_) return;
    for_fork_ = false;
    unlock();
  }

 private:
  static constexpr unsigned kRoundsBeforeYield = 64;
  static constexpr unsigned kMostRounds = 2000;

  std::atomic<const void*> owner_{nullptr};
  bool for_fork_ = false;  // changed by the one thread that forks (forking.cc)
};

// For a scope: true if the lock was taken, by `lock` or `lock_soon`. Also for an EndLock.
template <typename Lock>
class Locked {
 public:
  explicit Locked(Lock& lock) noexcept : lock_(lock.lock() ? &lock : nullptr) {}
  Locked(Lock& lock, bool had) noexcept : lock_(had ? &lock : nullptr) {}
  ~Locked() {
    if (lock_ != nullptr) lock_->unlock();
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  explicit operator bool() const noexcept { return lock_ != nullptr; }

 private:
  Lock* lock_;
};

}  // namespace leat::preload
