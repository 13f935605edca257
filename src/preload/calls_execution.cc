// exec and posix_spawn.
#include <spawn.h>
#include <stdarg.h>

#include <cstdio>
#include <cstring>

#include "preload/call.h"
#include "preload/inheritance.h"
#include "preload/mapped_array.h"
#include "preload/program_file.h"
#include "preload/spawn_actions.h"

namespace leat::preload {
namespace {

// The arguments of execl and its kin, up to the null; without malloc, like all of exec. Null if
// memory has run out.
class ProgramArguments {
 public:
  ProgramArguments(const char* first, va_list& rest) noexcept {
    va_list counted;
    va_copy(counted, rest);
    std::size_t count = 1;
    for (const char* one = first; one != nullptr; one = va_arg(counted, const char*)) ++count;
    va_end(counted);
    if (!words_.reserve(count)) return;
    words_.push(const_cast<char*>(first));
    while (*(words_.end() - 1) != nullptr) words_.push(va_arg(rest, char*));
  }
  char** data() noexcept { return words_.data(); }

 private:
  MappedArray<char*> words_;
};

template <typename Execute>
int execute(const char* path, char* const* environment, Execute call) noexcept {
  const Inheritance inheritance(path, environment);
  if (inheritance.error() == 0) return call(inheritance.environment());
  errno = inheritance.error();
  return -1;
}

const char* found(const char* file, char (&path)[PATH_MAX]) noexcept {
  const int kept_errno = errno;
  const bool is_there = file != nullptr && find_program(file, path);
  errno = kept_errno;
  return is_there ? path : nullptr;
}

// Another name of the file that execveat() means.
const char* path_in(int folder, const char* path, char (&buffer)[PATH_MAX]) noexcept {
  if (path == nullptr || path[0] == '/' || (folder == AT_FDCWD && path[0] != '\0')) return path;
  const bool empty = path[0] == '\0';
  const int bytes =
      snprintf(buffer, sizeof(buffer), "/proc/self/fd/%d%s%s", folder, empty ? "" : "/", path);
  return bytes < static_cast<int>(sizeof(buffer)) ? buffer : nullptr;
}

template <typename Spawn>
int spawn(const char* path, const posix_spawn_file_actions_t* actions, char* const* environment,
          Spawn call) {
  const Inheritance inheritance(path, environment, actions);
  if (inheritance.error() != 0) return inheritance.error();
  return call(inheritance.actions(), inheritance.environment());
}

// What the C library has added is noted, too.
int noted(int error, posix_spawn_file_actions_t* actions, const SpawnAction& action) noexcept {
  // Without memory for it the actions are not known, and the child gets what exec would give it.
  if (error == 0) note_spawn_action(*actions, action);
  return error;
}

}  // namespace
}  // namespace leat::preload

using namespace leat::preload;  // NOLINT: the functions below are C's
using Action = SpawnAction::Kind;

// The C library's headers call the parameters otherwise.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)

LEAT_CALL int execve(const char* path, char* const* arguments, char* const* environment) noexcept {
  return execute(path, environment,
                 [=](char* const* with_ours) { return real().execve(path, arguments, with_ours); });
}

LEAT_CALL int execv(const char* path, char* const* arguments) noexcept {
  return execve(path, arguments, environ);
}

LEAT_CALL int execvpe(const char* file, char* const* arguments, char* const* environment) noexcept {
  char path[PATH_MAX];
  return execute(found(file, path), environment, [=](char* const* with_ours) {
    return real().execvpe(file, arguments, with_ours);
  });
}

LEAT_CALL int execvp(const char* file, char* const* arguments) noexcept {
  return execvpe(file, arguments, environ);
}

LEAT_CALL int execveat(int folder, const char* path, char* const* arguments,
                       char* const* environment, int flags) noexcept {
  char buffer[PATH_MAX];
  return execute(path_in(folder, path, buffer), environment, [=](char* const* with_ours) {
    return real().execveat(folder, path, arguments, with_ours, flags);
  });
}

LEAT_CALL int fexecve(int fd, char* const* arguments, char* const* environment) noexcept {
  char buffer[PATH_MAX];
  return execute(path_in(fd, "", buffer), environment,
                 [=](char* const* with_ours) { return real().fexecve(fd, arguments, with_ours); });
}

LEAT_CALL int execl(const char* path, const char* first, ...) noexcept {
  va_list rest;
  va_start(rest, first);
  ProgramArguments arguments(first, rest);
  va_end(rest);
  return execve(path, arguments.data(), environ);
}

LEAT_CALL int execlp(const char* file, const char* first, ...) noexcept {
  va_list rest;
  va_start(rest, first);
  ProgramArguments arguments(first, rest);
  va_end(rest);
  return execvpe(file, arguments.data(), environ);
}

LEAT_CALL int execle(const char* path, const char* first, ...) noexcept {
  va_list rest;
  va_start(rest, first);
  ProgramArguments arguments(first, rest);
  char* const* environment = va_arg(rest, char* const*);
  va_end(rest);
  return execve(path, arguments.data(), environment);
}

LEAT_CALL int posix_spawn(pid_t* child, const char* path, const posix_spawn_file_actions_t* actions,
                          const posix_spawnattr_t* attributes, char* const* arguments,
                          char* const* environment) {
  return spawn(path, actions, environment, [=](const auto* with_ours, char* const* variables) {
    return real().posix_spawn(child, path, with_ours, attributes, arguments, variables);
  });
}

LEAT_CALL int posix_spawnp(pid_t* child, const char* file,
                           const posix_spawn_file_actions_t* actions,
                           const posix_spawnattr_t* attributes, char* const* arguments,
                           char* const* environment) {
  char buffer[PATH_MAX];
  const char* const path = found(file, buffer);
  return spawn(path, actions, environment, [=](const auto* with_ours, char* const* variables) {
    return real().posix_spawnp(child, file, with_ours, attributes, arguments, variables);
  });
}

LEAT_CALL int posix_spawn_file_actions_init(posix_spawn_file_actions_t* actions) noexcept {
  const int error = real().posix_spawn_file_actions_init(actions);
  if (error == 0) begin_spawn_actions(*actions);
  return error;
}

LEAT_CALL int posix_spawn_file_actions_destroy(posix_spawn_file_actions_t* actions) noexcept {
  end_spawn_actions(*actions);
  return real().posix_spawn_file_actions_destroy(actions);
}

LEAT_CALL int posix_spawn_file_actions_addopen(posix_spawn_file_actions_t* actions, int fd,
                                               const char* path, int flags, mode_t mode) noexcept {
  return noted(real().posix_spawn_file_actions_addopen(actions, fd, path, flags, mode), actions,
               {Action::kOpen, fd, -1, const_cast<char*>(path), flags, mode});
}

LEAT_CALL int posix_spawn_file_actions_addclose(posix_spawn_file_actions_t* actions,
                                                int fd) noexcept {
  return noted(real().posix_spawn_file_actions_addclose(actions, fd), actions,
               {Action::kClose, fd});
}

LEAT_CALL int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t* actions, int fd,
                                               int to) noexcept {
  return noted(real().posix_spawn_file_actions_adddup2(actions, fd, to), actions,
               {Action::kDup2, fd, to});
}

LEAT_CALL int posix_spawn_file_actions_addchdir_np(posix_spawn_file_actions_t* actions,
                                                   const char* path) noexcept {
  return noted(real().posix_spawn_file_actions_addchdir_np(actions, path), actions,
               {Action::kChangeFolder, -1, -1, const_cast<char*>(path)});
}

LEAT_CALL int posix_spawn_file_actions_addfchdir_np(posix_spawn_file_actions_t* actions,
                                                    int fd) noexcept {
  return noted(real().posix_spawn_file_actions_addfchdir_np(actions, fd), actions,
               {Action::kChangeToFolder, fd});
}

LEAT_CALL int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t* actions,
                                                       int first) noexcept {
  return noted(real().posix_spawn_file_actions_addclosefrom_np(actions, first), actions,
               {Action::kCloseFrom, first});
}

LEAT_CALL int posix_spawn_file_actions_addtcsetpgrp_np(posix_spawn_file_actions_t* actions,
                                                       int terminal) noexcept {
  return noted(real().posix_spawn_file_actions_addtcsetpgrp_np(actions, terminal), actions,
               {Action::kTerminal, terminal});
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
