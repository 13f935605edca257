// The C library's own functions, behind the ones that this library puts in front of them.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <csetjmp>
#include <csignal>

// The functions are variadic in the headers, but not in how they are called.
using LeatControlCall = int (*)(int, int, void*);
using LeatIoctlCall = int (*)(int, unsigned long, void*);
// Its headers give them one name by turns.
using LeatJump = void (*)(__jmp_buf_tag*, int);

// clang-format off
#define LEAT_REAL_FUNCTIONS(X) \
  X(socket) X(listen) X(accept) X(accept4) X(connect) X(shutdown) X(close) X(getpeername) X(getsockopt) X(setsockopt) \
  X(read) X(write) X(readv) X(writev) X(preadv64v2) X(pwritev64v2) X(recv) X(recvfrom) X(recvmsg) X(recvmmsg) \
  X(send) X(sendto) X(sendmsg) X(sendmmsg) X(poll) X(ppoll) X(select) X(pselect) \
  X(epoll_create) X(epoll_create1) X(epoll_ctl) X(epoll_wait) X(epoll_pwait) X(epoll_pwait2) \
  X(dup) X(dup2) X(dup3) X(close_range) X(sendfile) X(sendfile64) X(splice) X(fdopen) X(fileno) X(fileno_unlocked) X(vdprintf) \
  X(fork) X(_Fork) X(clone) X(daemon) X(execve) X(execveat) X(execvpe) X(fexecve) X(posix_spawn) X(posix_spawnp) X(system) X(fclose) X(freopen) X(freopen64) X(syscall) \
  X(posix_spawn_file_actions_init) X(posix_spawn_file_actions_destroy) X(posix_spawn_file_actions_addopen) \
  X(posix_spawn_file_actions_addclose) X(posix_spawn_file_actions_adddup2) X(posix_spawn_file_actions_addchdir_np) \
  X(posix_spawn_file_actions_addfchdir_np) X(posix_spawn_file_actions_addclosefrom_np) X(posix_spawn_file_actions_addtcsetpgrp_np)
// clang-format on

namespace leat::preload {

struct Real {
  // NOLINTNEXTLINE(bugprone-macro-parentheses)
#define LEAT_MEMBER(name) decltype(&::name) name;
  LEAT_REAL_FUNCTIONS(LEAT_MEMBER)
#undef LEAT_MEMBER
  LeatControlCall fcntl;
  LeatIoctlCall ioctl;
  LeatJump longjmp;          // which all are that check nothing
  LeatJump longjmp_checked;  // for programs built with _FORTIFY_SOURCE
};

// Looks them up at the first call, which may come from another library's constructor.
const Real& real() noexcept;

// A system call by its number, past every function that stands in front of the C library's: no
// cancellation point.
template <typename... Arguments>
long system_call(long number, Arguments... arguments) noexcept {
  return real().syscall(number, arguments...);
}

// As a call of the C library fails; and what it gives where ours give -errno.
inline int fail(int error) noexcept {
  errno = error;
  return -1;
}
inline long result_of(long result) noexcept {
  return result >= 0 ? result : fail(static_cast<int>(-result));
}

}  // namespace leat::preload
