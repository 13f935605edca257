// Opening, copying and closing descriptors, by every way there is, and looking what is left.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "steps.h"

namespace posix_fuzz {

enum CloseWay {
  kClose,
  kCloseBySyscall,
  kCloseByInstruction,
  kCloseFound,
  kCloseRange,
  kCloseRangeBySyscall,
  kCloseStream,
};
const Words kCloseWays = {{"close", kClose},
                          {"syscall", kCloseBySyscall},
                          {"raw", kCloseByInstruction},
                          {"dlsym", kCloseFound},
                          {"close_range", kCloseRange},
                          {"sys_close_range", kCloseRangeBySyscall},
                          {"fclose", kCloseStream}};
enum OpenWay { kOpen, kOpenBySyscall, kOpenByInstruction };
const Words kOpenWays = {{"libc", kOpen}, {"syscall", kOpenBySyscall}, {"raw", kOpenByInstruction}};
enum DupWay { kDup2, kDup3, kDup3CloseOnExec, kSysDup3, kRawDup3 };
const Words kDupWays = {{"dup2", kDup2},
                        {"dup3", kDup3},
                        {"dup3_cloexec", kDup3CloseOnExec},
                        {"sys_dup3", kSysDup3},
                        {"raw_dup3", kRawDup3}};

namespace {

constexpr std::size_t kFileBytes = 300;

// A file of some bytes without a name.
void run_file(Call& call) {
  constexpr const char* kFolder = "/tmp";
  constexpr int kFlags = O_TMPFILE | O_RDWR;
  const int way = call.argument(1);
  long fd = -1;
  if (way == kOpen) fd = open(kFolder, kFlags, 0600);
  if (way == kOpenBySyscall) fd = syscall(SYS_openat, AT_FDCWD, kFolder, kFlags, 0600);
  if (way == kOpenByInstruction) {
    fd = raw_call(SYS_openat, AT_FDCWD, address_of(kFolder), kFlags, 0600);
  }
  call.keep(0, static_cast<int>(call.result(fd)));
  unsigned char bytes[kFileBytes];
  fill_pattern(bytes, sizeof(bytes), call.number());
  if (fd >= 0) raw_call(SYS_pwrite64, fd, address_of(bytes), sizeof(bytes), 0);
}

void keep_both(const Call& call, long made, const int (&ends)[2]) {
  call.result(made);
  if (made == 0) call.say(" %d %d", ends[0], ends[1]);
  call.keep(0, made == 0 ? ends[0] : -1);
  call.keep(1, made == 0 ? ends[1] : -1);
}

// Whose reader and writer do not block.
void run_pipe(Call& call) {
  int ends[2] = {-1, -1};
  const int way = call.argument(2);
  long made = -1;
  if (way == kOpen) made = pipe2(ends, O_NONBLOCK);
  if (way == kOpenBySyscall) made = syscall(SYS_pipe2, ends, O_NONBLOCK);
  if (way == kOpenByInstruction) made = raw_call(SYS_pipe2, address_of(ends), O_NONBLOCK);
  keep_both(call, made, ends);
}

void run_socketpair(Call& call) {
  int ends[2] = {-1, -1};
  const int type = SOCK_STREAM | SOCK_NONBLOCK;
  const int way = call.argument(2);
  long made = -1;
  if (way == kOpen) made = socketpair(AF_UNIX, type, 0, ends);
  if (way == kOpenBySyscall) made = syscall(SYS_socketpair, AF_UNIX, type, 0, ends);
  if (way == kOpenByInstruction) {
    made = raw_call(SYS_socketpair, AF_UNIX, type, 0, address_of(ends));
  }
  keep_both(call, made, ends);
}

void run_eventfd(Call& call) {
  const int way = call.argument(1);
  long fd = -1;
  if (way == kOpen) fd = eventfd(3, EFD_NONBLOCK);
  if (way == kOpenBySyscall) fd = syscall(SYS_eventfd2, 3, EFD_NONBLOCK);
  if (way == kOpenByInstruction) fd = raw_call(SYS_eventfd2, 3, EFD_NONBLOCK);
  call.keep(0, static_cast<int>(call.result(fd)));
}

// close() past the functions in front of it, as plug-ins find it.
int close_found(int fd) {
  static void* const library = dlopen("libc.so.6", RTLD_NOW);
  static const auto function =
      reinterpret_cast<int (*)(int)>(library != nullptr ? dlsym(library, "close") : nullptr);
  return function != nullptr ? function(fd) : -1;
}

void run_close(Call& call) {
  const int fd = call.fd(0);
  // A range from -1 is everything, the stage too.
  const auto first = static_cast<unsigned>(fd < 0 ? kScriptNumbers : fd);
  long result = -1;
  switch (call.argument(1)) {
    case kClose:
      result = close(fd);
      break;
    case kCloseBySyscall:
      result = syscall(SYS_close, fd);
      break;
    case kCloseByInstruction:
      result = raw_call(SYS_close, fd);
      break;
    case kCloseFound:
      result = close_found(fd);
      break;
    case kCloseRange:
      result = close_range(first, first, 0);
      break;
    case kCloseRangeBySyscall:
      result = syscall(SYS_close_range, first, first, 0);
      break;
    default: {
      FILE* const file = fdopen(fd, "r+");
      result = file != nullptr ? fclose(file) : -1;
    }
  }
  call.result(result);
}

void run_dup(Call& call) { call.keep(1, static_cast<int>(call.result(dup(call.fd(0))))); }

void run_dupfd(Call& call) {
  call.keep(1,
            static_cast<int>(call.result(fcntl(
                call.fd(0), call.argument(3) != 0 ? F_DUPFD_CLOEXEC : F_DUPFD, call.argument(2)))));
}

// In place of another descriptor.
void run_dup2(Call& call) {
  const int from = call.fd(0);
  const int to = call.fd(1);
  long result = -1;
  switch (call.argument(2)) {
    case kDup2:
      result = dup2(from, to);
      break;
    case kDup3:
      result = dup3(from, to, 0);
      break;
    case kDup3CloseOnExec:
      result = dup3(from, to, O_CLOEXEC);
      break;
    case kSysDup3:
      result = syscall(SYS_dup3, from, to, 0);
      break;
    default:
      result = raw_call(SYS_dup3, from, to, 0);
  }
  call.result(result);
}

void run_nonblocking(Call& call) {
  const int fd = call.fd(0);
  int on = call.argument(1);
  if (call.argument(2) != 0) {
    call.result(ioctl(fd, FIONBIO, &on));
    return;
  }
  const int flags = fcntl(fd, F_GETFL);
  call.result(fcntl(fd, F_SETFL, on != 0 ? flags | O_NONBLOCK : flags & ~O_NONBLOCK));
}

void run_descriptor_flags(Call& call) {
  call.result(fcntl(call.fd(0), F_GETFL));
  call.result(fcntl(call.fd(0), F_GETFD));
}

void run_close_on_exec(Call& call) {
  call.result(fcntl(call.fd(0), F_SETFD, call.argument(1) != 0 ? FD_CLOEXEC : 0));
}

void run_waiting_bytes(Call& call) {
  int bytes = -1;
  const long result = ioctl(call.fd(0), FIONREAD, &bytes);
  call.result(result);
  if (result == 0) call.say(" %d", bytes);
}

void run_limit(Call& call) {
  rlimit limit{};
  raw_call(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, address_of(&limit));
  limit.rlim_cur = static_cast<rlim_t>(call.argument(0));
  call.result(setrlimit(RLIMIT_NOFILE, &limit));
}

// In the place of stdin, stdout or stderr, which the name means from then on.
void run_standard(Call& call) {
  call.keep(0, static_cast<int>(call.result(dup2(call.fd(0), call.argument(1)))));
}

void run_seek(Call& call) { call.result(lseek(call.fd(0), call.argument(1), SEEK_SET)); }

void say_file(const Call& call, int fd, const struct stat& about) {
  unsigned char bytes[4096];
  const long size = raw_call(SYS_pread64, fd, address_of(bytes), sizeof(bytes), 0);
  call.say("f%ld", static_cast<long>(about.st_size));
  call.data(bytes, size);
}

// Every descriptor, and what files and pipes hold: asked of the kernel, so that what went elsewhere
// is found out.
void run_look(Call& call) {
  for (int fd = 0; fd < kScriptNumbers; ++fd) {
    struct stat about {};
    if (raw_call(SYS_fstat, fd, address_of(&about)) != 0) continue;
    call.say(" %d:", fd);
    if (S_ISREG(about.st_mode)) {
      say_file(call, fd, about);
    } else if (S_ISFIFO(about.st_mode)) {
      int bytes = 0;
      raw_call(SYS_ioctl, fd, FIONREAD, address_of(&bytes));
      call.say("p%d", bytes);
    } else {
      call.say("%s", S_ISSOCK(about.st_mode) ? "s" : (S_ISCHR(about.st_mode) ? "c" : "a"));
    }
  }
}

}  // namespace

std::vector<Operation> descriptor_operations() {
  return {
      {"file", {slot(), word(kOpenWays)}, run_file},
      {"pipe", {slot(), slot(), word(kOpenWays)}, run_pipe},
      {"socketpair", {slot(), slot(), word(kOpenWays)}, run_socketpair},
      {"eventfd", {slot(), word(kOpenWays)}, run_eventfd},
      {"close", {slot(), word(kCloseWays)}, run_close},
      {"dup", {slot(), slot()}, run_dup},
      {"dupfd", {slot(), slot(), number(), number()}, run_dupfd},
      {"dup2", {slot(), slot(), word(kDupWays)}, run_dup2},
      {"nonblocking", {slot(), number(), number()}, run_nonblocking},
      {"flags", {slot()}, run_descriptor_flags},
      {"close_on_exec", {slot(), number()}, run_close_on_exec},
      {"waiting_bytes", {slot()}, run_waiting_bytes},
      {"seek", {slot(), number()}, run_seek},
      {"limit", {number()}, run_limit},
      {"standard", {slot(), number()}, run_standard},
      {"look", {}, run_look},
  };
}

}  // namespace posix_fuzz
