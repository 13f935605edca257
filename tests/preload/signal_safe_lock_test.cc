// A lock that knows its owner: for signal handlers that interrupted it, and for fork().
#include "preload/signal_safe_lock.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

namespace leat::preload {
namespace {

SignalSafeLock held;
std::atomic<int> handlers_answer{-1};

TEST(SignalSafeLock, HandlerThatInterruptedTheOwnerDoesNotWait) {
  struct sigaction action {};
  action.sa_handler = [](int) {
    handlers_answer = (held.lock() ? 1 : 0) + (held.lock_soon() ? 1 : 0);
  };
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  ASSERT_TRUE(held.lock());
  raise(SIGUSR1);
  EXPECT_EQ(handlers_answer, 0);
  EXPECT_TRUE(held.held_here());
  held.unlock();
  EXPECT_FALSE(held.held_here());
  sigaction(SIGUSR1, &before, nullptr);
}

TEST(SignalSafeLock, AnotherThreadWaitsButNotForEver) {
  SignalSafeLock lock;
  ASSERT_TRUE(lock.lock());
  bool soon = true;
  std::thread([&] { soon = lock.lock_soon(); }).join();
  EXPECT_FALSE(soon);
  std::atomic<bool> had{false};
  std::thread waiter([&] {
    had = lock.lock() && lock.held_here();
    lock.unlock();
  });
  lock.unlock();
  waiter.join();
  EXPECT_TRUE(had);
}

TEST(SignalSafeLock, KeepsThreadsApart) {
  SignalSafeLock lock;
  constexpr int kTimes = 20'000;
  int count = 0;
  const auto add = [&] {
    for (int i = 0; i < kTimes; ++i) {
      const Locked locked(lock);
      count = count + (locked ? 1 : 0);
    }
  };
  std::thread other(add);
  add();
  other.join();
  EXPECT_EQ(count, 2 * kTimes);
}

TEST(SignalSafeLock, ForkTakesWhatIsFreeAndLeavesWhatItsThreadHas) {
  SignalSafeLock free;
  SignalSafeLock own;
  SignalSafeLock others;
  ASSERT_TRUE(own.lock());
  std::thread([&] { others.lock(); }).join();
  EXPECT_TRUE(free.try_hold_for_fork());
  EXPECT_TRUE(own.try_hold_for_fork());
  EXPECT_FALSE(others.try_hold_for_fork());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // The same thread, by another id.
    const bool kept = free.held_here() && own.held_here() && !others.held_here();
    for (SignalSafeLock* lock : {&free, &own, &others}) lock->let_go_after_fork();
    _exit(kept && free.try_lock() && own.held_here() && !others.try_lock() ? 0 : 1);
  }
  for (SignalSafeLock* lock : {&free, &own, &others}) lock->let_go_after_fork();
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(free.held_here());
  EXPECT_TRUE(own.held_here());
  EXPECT_FALSE(others.try_lock());
}

}  // namespace
}  // namespace leat::preload
