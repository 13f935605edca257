// fork and its kin.
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>

#include "preload/call.h"
#include "preload/end_state.h"
#include "preload/forking.h"
#include "preload/inherited.h"
#include "preload/kept_memory.h"
#include "preload/rings.h"

namespace leat::preload {

void before_fork() noexcept {
  decide_before_fork();
  hold_locks_for_fork();
}

void after_fork_in_parent() noexcept {
  const int kept_errno = errno;
  let_go_of_locks_in_parent();
  errno = kept_errno;
}

void after_fork_in_child() noexcept {
  const int kept_errno = errno;
  forget_thread_id();
  forget_process_id();
  let_go_of_locks_in_child();
  forget_kept_memory();
  errno = kept_errno;
}

namespace {

// What clone() runs in the child, whose memory is a copy.
struct Body {
  int (*function)(void*);
  void* argument;
};
int run_in_child(void* body) {
  after_fork_in_child();
  return static_cast<Body*>(body)->function(static_cast<Body*>(body)->argument);
}

[[gnu::constructor]] void start() {
  real();
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  inherit();
  expect_rings_of_liburing();
}

}  // namespace
}  // namespace leat::preload

using namespace leat::preload;  // NOLINT: the functions below are C's

// The C library's headers call the parameters otherwise.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)

// fork() tells of itself (pthread_atfork); these do not.
LEAT_CALL pid_t _Fork() noexcept {
  before_fork();
  const pid_t child = real()._Fork();
  child == 0 ? after_fork_in_child() : after_fork_in_parent();
  return child;
}

LEAT_CALL int clone(int (*function)(void*), void* stack, int flags, void* argument, ...) noexcept {
  pid_t* parent_id = nullptr;
  void* thread_data = nullptr;
  pid_t* child_id = nullptr;
  constexpr int kWithMore =
      CLONE_PARENT_SETTID | CLONE_PIDFD | CLONE_SETTLS | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
  if ((flags & kWithMore) != 0) {
    va_list more;
    va_start(more, argument);
    parent_id = va_arg(more, pid_t*);
    thread_data = va_arg(more, void*);
    child_id = va_arg(more, pid_t*);
    va_end(more);
  }
  if ((flags & CLONE_VM) != 0)  // a thread, or one that only executes
    return real().clone(function, stack, flags, argument, parent_id, thread_data, child_id);
  before_fork();
  Body body{function, argument};
  const int child =
      real().clone(run_in_child, stack, flags, &body, parent_id, thread_data, child_id);
  after_fork_in_parent();
  return child;
}

// A child of the kernel's vfork() shares our tables with its parent, and must not change them. As
// with that, no handlers of pthread_atfork() run, so the child must not use malloc.
LEAT_CALL pid_t vfork() noexcept { return _Fork(); }
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
