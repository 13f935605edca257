// An actor: a thread of a process that does one step at a time, when the controller says so.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "raw.h"
#include "steps.h"

namespace posix_fuzz {

namespace {
constexpr long kLookAfterUs = 1'000'000;
}  // namespace

Process process;
thread_local Seat* seat = nullptr;

void act(Seat& mine) {
  seat = &mine;
  mine.pid = static_cast<int>(raw_call(SYS_getpid));
  mine.tid = static_cast<int>(raw_call(SYS_gettid));
  mine.born = 1;
  announce(*process.stage);
  for (;;) {
    const std::uint32_t done = mine.answered;
    while (mine.order == done) {
      futex_wait(mine.order, done, kLookAfterUs);
      // So that a fuzzer that is stopped by hand leaves no process behind.
      if (raw_call(SYS_kill, process.stage->controller, 0) != 0) raw_call(SYS_exit_group, 1);
    }
    Call call(mine);
    errno = 0;
    if (mine.receives) {
      receive_pumped(call);
    } else {
      operations()[static_cast<std::size_t>(mine.step.operation)].run(call);
    }
    mine.answered = done + 1;
    announce(*process.stage);
  }
}

void Call::say(const char* format, ...) const {
  const int kept_errno = errno;
  const std::size_t room = sizeof(seat_.text) - seat_.length;
  va_list arguments;
  va_start(arguments, format);
  const int written = std::vsnprintf(seat_.text + seat_.length, room, format, arguments);
  va_end(arguments);
  if (written > 0 && static_cast<std::size_t>(written) < room)
    seat_.length += static_cast<std::uint32_t>(written);
  errno = kept_errno;
}

long Call::result(long value) const {
  if (value == -1) {
    say(" = -1 %s", strerrorname_np(errno));
  } else {
    say(" = %ld", value);
  }
  return value;
}

void Call::data(const void* bytes, long count) const {
  if (count > 0) say(" #%08x", digest(bytes, static_cast<std::size_t>(count)));
}

void fill_pattern(unsigned char* bytes, std::size_t count, int number) {
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<unsigned char>(
        (i * 7 + i / 256 + static_cast<std::size_t>(number) * 31) & 0xff);
}

std::uint32_t digest(const void* bytes, std::size_t count) {
  std::uint32_t hash = 2166136261U;
  for (std::size_t i = 0; i < count; ++i)
    hash = (hash ^ static_cast<const unsigned char*>(bytes)[i]) * 16777619U;
  return hash;
}

}  // namespace posix_fuzz
