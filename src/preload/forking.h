// fork() while other threads use what this library keeps.
//
// A child has only the thread that forked, and everything as it was at that moment. So that nothing
// is half changed then, the forking thread holds every lock of this library across the fork, as the
// C library does with its own; the child's copy of that thread lets go of them like the parent's.
#pragma once

#include <sched.h>

#include <atomic>

namespace leat::preload {

void hold_locks_for_fork() noexcept;
void let_go_of_locks_in_parent() noexcept;
void let_go_of_locks_in_child() noexcept;

inline std::atomic<unsigned> forking_threads{0};

// Before a lock that a thread takes again and again, holding no other: the thread that forks must
// find all of them free at once. It is only a courtesy, so it ends after a while: this thread may
// be in a signal handler that interrupted an owner for which the other one waits.
inline void let_forking_threads_first() noexcept {
  // Relaxed: nothing but this pause depends on it.
  for (unsigned round = 0; forking_threads.load(std::memory_order_relaxed) != 0 && round < 100;
       ++round)
    sched_yield();
}

}  // namespace leat::preload
