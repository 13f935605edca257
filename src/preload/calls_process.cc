// fork, exec and posix_spawn.
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>

#include <string>
#include <vector>

#include "preload/call.h"
#include "preload/configuration.h"
#include "preload/escapes.h"
#include "preload/forking.h"
#include "preload/inheritance.h"
#include "preload/kept_memory.h"
#include "preload/program_file.h"
#include "preload/side_lock.h"

namespace leat::preload {

namespace {

void before_fork() {
  decide_before_fork();
  hold_locks_for_fork();
}

void in_parent() { let_go_of_locks_in_parent(); }

void in_child() {
  forget_thread_id();
  forget_process_id();
  forget_pool_lock();
  let_go_of_locks_in_child();
  forget_kept_memory();
}

// What clone() runs in the child, whose memory is a copy.
struct Body {
  int (*function)(void*);
  void* argument;
};
int run_in_child(void* body) {
  in_child();
  return static_cast<Body*>(body)->function(static_cast<Body*>(body)->argument);
}

[[gnu::constructor]] void start() {
  real();
  pthread_atfork(before_fork, in_parent, in_child);
  inherit();
}

// Where execvp finds it; only the debug mode wants to know.
std::string found(const char* file) {
  if (!reports_escapes() || file == nullptr) return {};
  return find_program(file).value_or("");
}

// The arguments of execl and its kin, up to the null.
std::vector<char*> arguments_of(const char* first, va_list& rest) {
  std::vector<char*> arguments{const_cast<char*>(first)};
  while (arguments.back() != nullptr) arguments.push_back(va_arg(rest, char*));
  return arguments;
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
  const int kept_errno = errno;
  child == 0 ? in_child() : in_parent();
  errno = kept_errno;
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
  const int kept_errno = errno;
  in_parent();
  errno = kept_errno;
  return child;
}

// A child of vfork() shares our tables with its parent, and must not change them.
LEAT_CALL pid_t vfork() noexcept { return real().fork(); }

LEAT_CALL int execve(const char* path, char* const* arguments, char* const* environment) noexcept {
  Inheritance inheritance(path, environment, false);
  return real().execve(path, arguments, inheritance.environment());
}

LEAT_CALL int execv(const char* path, char* const* arguments) noexcept {
  return execve(path, arguments, environ);
}

LEAT_CALL int execvpe(const char* file, char* const* arguments, char* const* environment) noexcept {
  Inheritance inheritance(found(file).c_str(), environment, false);
  return real().execvpe(file, arguments, inheritance.environment());
}

LEAT_CALL int execvp(const char* file, char* const* arguments) noexcept {
  return execvpe(file, arguments, environ);
}

LEAT_CALL int execveat(int folder, const char* path, char* const* arguments,
                       char* const* environment, int flags) noexcept {
  Inheritance inheritance(nullptr, environment, false);
  return real().execveat(folder, path, arguments, inheritance.environment(), flags);
}

LEAT_CALL int fexecve(int fd, char* const* arguments, char* const* environment) noexcept {
  Inheritance inheritance(nullptr, environment, false);
  return real().fexecve(fd, arguments, inheritance.environment());
}

LEAT_CALL int execl(const char* path, const char* first, ...) noexcept {
  va_list rest;
  va_start(rest, first);
  const std::vector<char*> arguments = arguments_of(first, rest);
  va_end(rest);
  return execve(path, arguments.data(), environ);
}

LEAT_CALL int execlp(const char* file, const char* first, ...) noexcept {
  va_list rest;
  va_start(rest, first);
  const std::vector<char*> arguments = arguments_of(first, rest);
  va_end(rest);
  return execvpe(file, arguments.data(), environ);
}

LEAT_CALL int execle(const char* path, const char* first, ...) noexcept {
  va_list rest;
  va_start(rest, first);
  const std::vector<char*> arguments = arguments_of(first, rest);
  char* const* environment = va_arg(rest, char* const*);
  va_end(rest);
  return execve(path, arguments.data(), environment);
}

LEAT_CALL int posix_spawn(pid_t* child, const char* path, const posix_spawn_file_actions_t* actions,
                          const posix_spawnattr_t* attributes, char* const* arguments,
                          char* const* environment) {
  Inheritance inheritance(path, environment, true);
  return real().posix_spawn(child, path, actions, attributes, arguments, inheritance.environment());
}

LEAT_CALL int posix_spawnp(pid_t* child, const char* file,
                           const posix_spawn_file_actions_t* actions,
                           const posix_spawnattr_t* attributes, char* const* arguments,
                           char* const* environment) {
  Inheritance inheritance(found(file).c_str(), environment, true);
  return real().posix_spawnp(child, file, actions, attributes, arguments,
                             inheritance.environment());
}

LEAT_CALL int system(const char* command) {
  report_command(command);
  return real().system(command);
}

LEAT_CALL FILE* popen(const char* command, const char* mode) {
  report_command(command);
  return real().popen(command, mode);
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
