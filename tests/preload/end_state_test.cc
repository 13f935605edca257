// The locks of an end, which processes share: a holder that dies keeps none.
#include "preload/end_state.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <thread>

namespace leat::preload {
namespace {

class EndLocks : public testing::Test {
 protected:
  EndLocks() { EXPECT_NE(end_.state, nullptr); }
  ~EndLocks() override { release_end(end_, true); }

  EndLock& lock() const { return end_.state->send_lock; }

  // A process that has the lock, and keeps it until it is killed.
  pid_t start_holder() const {
    std::array<int, 2> holds{};
    EXPECT_EQ(pipe(holds.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
      forget_thread_id();
      forget_process_id();
      if (!lock().lock() || write(holds[1], "!", 1) != 1) _exit(1);
      for (;;) pause();
    }
    close(holds[1]);
    char byte = 0;
    EXPECT_EQ(read(holds[0], &byte, 1), 1);
    close(holds[0]);
    return child;
  }
  // It is dead, but its parent has not waited for it.
  static void make_zombie(pid_t child) {
    EXPECT_EQ(kill(child, SIGKILL), 0);
    siginfo_t how{};
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(child), &how, WEXITED | WNOWAIT), 0);
  }
  static void reap(pid_t child) { EXPECT_EQ(waitpid(child, nullptr, 0), child); }

 private:
  const EndHold end_ = new_end();
};

TEST_F(EndLocks, AreFreeOnceTheirHolderIsDeadAndWaitedFor) {
  const pid_t child = start_holder();
  EXPECT_FALSE(lock().try_lock());
  make_zombie(child);
  reap(child);
  EXPECT_TRUE(lock().lock());
  EXPECT_TRUE(lock().held_here());
  lock().unlock();
  EXPECT_TRUE(lock().try_lock()) << "and as good as before";
  lock().unlock();
}

TEST_F(EndLocks, AreFreeWhileTheirHolderIsAZombie) {
  for (const bool waits : {true, false}) {
    const pid_t child = start_holder();
    make_zombie(child);
    EXPECT_TRUE(waits ? lock().lock() : lock().try_lock());
    lock().unlock();
    reap(child);
  }
}

TEST_F(EndLocks, GoToAThreadThatWaitsAsTheirHolderDies) {
  const pid_t child = start_holder();
  bool had = false;
  std::thread waiting([&] {
    had = lock().lock();
    lock().unlock();
  });
  make_zombie(child);
  waiting.join();
  EXPECT_TRUE(had);
  reap(child);
}

// The next one after a death that another process found.
TEST_F(EndLocks, AreFreeAfterSeveralDeaths) {
  for (int deaths = 0; deaths < 3; ++deaths) {
    const pid_t child = start_holder();
    make_zombie(child);
    reap(child);
  }
  EXPECT_TRUE(lock().try_lock());
  lock().unlock();
}

}  // namespace
}  // namespace leat::preload
