// system and popen. The C library's own start the shell past our posix_spawn().
#include <spawn.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <new>
#include <utility>

#include "preload/call.h"
#include "preload/commands.h"
#include "preload/inheritance.h"
#include "preload/undisturbed.h"

namespace leat::preload {
namespace {

constexpr char kShell[] = "/bin/sh";
constexpr int kNoShell = 127 << 8;  // as if it had ended so

// The process ignores SIGINT and SIGQUIT for as long as any of its threads is in system().
struct Ignored {
  unsigned users = 0;
  struct sigaction interrupt {};
  struct sigaction quit {};
};
constinit Ignored ignored;

// And this thread hears of no child for as long.
class InCommand {
 public:
  InCommand() noexcept {
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    const Locked locked(lock_of_ignored_signals);
    if (ignored.users++ == 0) {
      struct sigaction ignore {};
      ignore.sa_handler = SIG_IGN;
      sigaction(SIGINT, &ignore, &ignored.interrupt);
      sigaction(SIGQUIT, &ignore, &ignored.quit);
    }
    sigemptyset(&defaults_);
    if (ignored.interrupt.sa_handler != SIG_IGN) sigaddset(&defaults_, SIGINT);
    if (ignored.quit.sa_handler != SIG_IGN) sigaddset(&defaults_, SIGQUIT);
    pthread_sigmask(SIG_BLOCK, &children, &mask_);
  }
  ~InCommand() {
    const Undisturbed undisturbed;
    const Locked locked(lock_of_ignored_signals);
    if (--ignored.users == 0) {
      sigaction(SIGINT, &ignored.interrupt, nullptr);
      sigaction(SIGQUIT, &ignored.quit, nullptr);
    }
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }
  InCommand(const InCommand&) = delete;
  InCommand& operator=(const InCommand&) = delete;

  // What was before is the command's.
  void give(posix_spawnattr_t& attributes) const noexcept {
    posix_spawnattr_setsigmask(&attributes, &mask_);
    posix_spawnattr_setsigdefault(&attributes, &defaults_);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  }

 private:
  sigset_t mask_;
  sigset_t defaults_;
};

// A thread that is cancelled while it waits takes its command with it.
class Child {
 public:
  explicit Child(pid_t id) noexcept : id_(id) {}
  ~Child() {
    if (id_ < 0) return;
    const Undisturbed undisturbed;
    kill(id_, SIGKILL);
    int status = 0;
    while (waitpid(id_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // A cancellation point.
  int wait() {
    int status = -1;
    pid_t ended = -1;
    while ((ended = waitpid(id_, &status, 0)) < 0 && errno == EINTR) {
    }
    const bool good = ended == std::exchange(id_, -1);
    return good ? status : -1;
  }

 private:
  pid_t id_;
};

int start(pid_t& child, const char* command, const posix_spawn_file_actions_t* actions,
          const posix_spawnattr_t* attributes) {
  char* arguments[] = {const_cast<char*>("sh"), const_cast<char*>("-c"), const_cast<char*>(command),
                       nullptr};
  return posix_spawn(&child, kShell, actions, attributes, arguments, environ);
}

// A stream of popen() and the command at its other end.
struct Popened {
  FILE* file;
  pid_t child;
  Popened* next;
};

struct AllPopened {
  // Relaxed outside the lock: the thread that closes a stream has got it from popen(), and sees
  // that.
  std::atomic<Popened*> first{nullptr};
};
constinit AllPopened popened;

Popened* take_popened(const FILE* file) noexcept {
  if (popened.first.load(std::memory_order_relaxed) == nullptr) return nullptr;
  const Locked locked(lock_of_popened);
  Popened* before = nullptr;
  Popened* one = popened.first.load(std::memory_order_relaxed);
  for (; one != nullptr && one->file != file; one = one->next) before = one;
  if (one == nullptr) return nullptr;
  if (before != nullptr) {
    before->next = one->next;
  } else {
    popened.first.store(one->next, std::memory_order_relaxed);
  }
  return one;
}

// What popen() may be asked for.
struct Mode {
  bool good = true;
  bool reads = false;
  bool closes_on_exec = false;
};

Mode parse(const char* text) noexcept {
  Mode mode;
  bool writes = false;
  for (const char* letter = text; *letter != '\0'; ++letter) {
    mode.reads |= *letter == 'r';
    writes |= *letter == 'w';
    mode.closes_on_exec |= *letter == 'e';
    mode.good &= *letter == 'r' || *letter == 'w' || *letter == 'e';
  }
  mode.good &= mode.reads != writes;
  return mode;
}

// The command gets one end of the pipe, and none of the streams to others. An error number, or 0.
int start_piped(pid_t& child, const char* command, int end, int number) {
  posix_spawn_file_actions_t actions;
  int error = posix_spawn_file_actions_init(&actions);
  if (error != 0) return error;
  error = posix_spawn_file_actions_adddup2(&actions, end, number);
  {
    const Locked locked(lock_of_popened);
    for (const Popened* one = popened.first.load(std::memory_order_relaxed);
         one != nullptr && error == 0; one = one->next) {
      const int fd = real().fileno(one->file);
      if (fd != number && fd >= 0) error = posix_spawn_file_actions_addclose(&actions, fd);
    }
  }
  if (error == 0) error = start(child, command, &actions, nullptr);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

FILE* give_up(int error, const int (&ends)[2], Popened* one) noexcept {
  for (const int end : ends) real().close(end);
  delete one;
  errno = error;
  return nullptr;
}

}  // namespace

}  // namespace leat::preload

using namespace leat::preload;  // NOLINT: the functions below are C's

// The C library's headers call the parameters otherwise.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)

LEAT_CALL int system(const char* command) {
  if (command == nullptr || !Inheritance::would_pass()) return real().system(command);
  const InCommand in_command;
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  in_command.give(attributes);
  pid_t id = -1;
  const int error = start(id, command, nullptr, &attributes);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    errno = error;
    return kNoShell;
  }
  return Child(id).wait();
}

LEAT_CALL FILE* popen(const char* command, const char* mode_text) {
  const Mode mode = parse(mode_text);
  int ends[2];
  if (!mode.good) errno = EINVAL;
  if (!mode.good || pipe2(ends, O_CLOEXEC) != 0) return nullptr;
  auto* one = new (std::nothrow) Popened{};
  if (one == nullptr) return give_up(ENOMEM, ends, one);
  const int ours = ends[mode.reads ? 0 : 1];
  const int its = ends[mode.reads ? 1 : 0];
  const int error =
      start_piped(one->child, command, its, mode.reads ? STDOUT_FILENO : STDIN_FILENO);
  if (error != 0) return give_up(error, ends, one);
  one->file = real().fdopen(ours, mode.reads ? "r" : "w");
  if (one->file == nullptr) return give_up(ENOMEM, ends, one);
  real().close(its);
  if (!mode.closes_on_exec) real().fcntl(ours, F_SETFD, nullptr);
  const Locked locked(lock_of_popened);
  one->next = popened.first.load(std::memory_order_relaxed);
  popened.first.store(one, std::memory_order_relaxed);
  return one->file;
}

LEAT_CALL int fclose(FILE* file) {
  Popened* one = take_popened(file);
  closing_stream(file);
  if (one == nullptr) return real().fclose(file);
  const pid_t child = one->child;
  delete one;
  real().fclose(file);
  const Uncancelled uncancelled;
  int status = -1;
  pid_t ended = -1;
  while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR) {
  }
  return ended == child ? status : -1;
}

LEAT_CALL int pclose(FILE* file) { return fclose(file); }
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
