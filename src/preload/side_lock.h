// A lock in the shared memory of a connection, for several users of one of its ends.
#pragma once

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace leat::preload {

// The id of this thread; forget_thread_id() after a fork, in the child.
inline thread_local std::uint32_t kept_thread_id = 0;
inline void forget_thread_id() noexcept { kept_thread_id = 0; }
inline std::uint32_t thread_id() noexcept {
  if (kept_thread_id == 0) [[unlikely]]
    kept_thread_id = static_cast<std::uint32_t>(gettid());
  return kept_thread_id;
}

// Of this process; forget_process_id() after a fork, in the child.
inline std::atomic<std::uint32_t> kept_process_id{0};
inline void forget_process_id() noexcept { kept_process_id.store(0, std::memory_order_relaxed); }
inline std::uint32_t process_id() noexcept {
  // Relaxed: whoever finds none asks the kernel for the same.
  std::uint32_t id = kept_process_id.load(std::memory_order_relaxed);
  if (id == 0) [[unlikely]] {
    id = static_cast<std::uint32_t>(getpid());
    kept_process_id.store(id, std::memory_order_relaxed);
  }
  return id;
}

// Whether this is the handler of a signal that came while this thread held the lock, for which it
// would wait for ever.
inline bool held_here(const std::atomic<std::uint32_t>& word) noexcept {
  // Relaxed: what this thread wrote itself.
  const std::uint32_t holder = word.load(std::memory_order_relaxed);
  return holder != 0 && holder == thread_id();
}

// Held for a copy of bytes, never while sleeping. A holder that was killed is found out by its
// thread id, which is why this is no pthread mutex: a robust one keeps pointers in the memory that
// the peer can write.
class SideLock {
 public:
  explicit SideLock(std::atomic<std::uint32_t>& word) noexcept : word_(word) {
    // Acquire, with the release of the last holder: we see what it did.
    std::uint32_t expected = 0;
    if (word_.compare_exchange_strong(expected, thread_id(), std::memory_order_acquire)) [[likely]]
      return;
    wait();
  }
  ~SideLock() { word_.store(0, std::memory_order_release); }
  SideLock(const SideLock&) = delete;
  SideLock& operator=(const SideLock&) = delete;

 private:
  void wait() noexcept {
    for (unsigned round = 1;; ++round) {
      std::uint32_t seen = word_.load(std::memory_order_relaxed);
      if (seen == 0) {
        if (word_.compare_exchange_weak(seen, thread_id(), std::memory_order_acquire)) return;
        continue;
      }
      if (round % 1024 == 0) {
        const bool dead = kill(static_cast<pid_t>(seen), 0) != 0 && errno == ESRCH;
        if (dead && word_.compare_exchange_strong(seen, thread_id(), std::memory_order_acquire))
          return;
        const timespec nap{.tv_sec = 0, .tv_nsec = 1'000'000};
        nanosleep(&nap, nullptr);
      } else {
        sched_yield();
      }
    }
  }

  std::atomic<std::uint32_t>& word_;
};

}  // namespace leat::preload
