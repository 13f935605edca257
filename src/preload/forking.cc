#include "preload/forking.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "preload/commands.h"
#include "preload/epoll_set.h"
#include "preload/hidden.h"
#include "preload/kept_memory.h"
#include "preload/short_connections.h"
#include "preload/signal_safe_lock.h"
#include "preload/stdio_streams.h"

namespace leat::preload {
namespace {

// If several threads fork, one goes first. It has signals blocked, so that none of its handlers
// forks meanwhile.
constinit SignalSafeLock turn;
sigset_t signals_before;  // of the thread that has the turn

std::array<SignalSafeLock*, 7> single_locks() {
  return {&lock_of_offered_memory(), &lock_of_accepted_memory(), &lock_of_short_connections(),
          &lock_of_streams(),        &lock_of_spare_numbers(),   &lock_of_ignored_signals,
          &lock_of_popened};
}

void let_go_of_all() {
  for (SignalSafeLock* lock : single_locks()) lock->let_go_after_fork();
  EpollSet::let_go_after_fork();
}

// Takes all locks or none: their owners wait for each other's locks in different orders.
bool try_hold_all() {
  const auto locks = single_locks();
  if (EpollSet::try_hold_for_fork() &&
      std::all_of(locks.begin(), locks.end(),
                  [](SignalSafeLock* lock) { return lock->try_hold_for_fork(); }))
    return true;
  let_go_of_all();
  return false;
}

void end_turn() {
  const sigset_t signals = signals_before;
  turn.unlock();
  pthread_sigmask(SIG_SETMASK, &signals, nullptr);
}

}  // namespace

void hold_locks_for_fork() noexcept {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  forking_threads.fetch_add(1, std::memory_order_relaxed);
  turn.lock();
  signals_before = before;
  while (!try_hold_all()) sched_yield();
}

void let_go_of_locks_in_parent() noexcept {
  let_go_of_all();
  forking_threads.fetch_sub(1, std::memory_order_relaxed);
  end_turn();
}

void let_go_of_locks_in_child() noexcept {
  EpollSet::note_forked();
  end_use_of_spare_numbers();
  let_go_of_all();
  // Those of the parent that wait for their turn are not here.
  forking_threads.store(0, std::memory_order_relaxed);
  end_turn();
}

}  // namespace leat::preload
