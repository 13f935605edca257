// System calls by an inline instruction, past every function of any library: for what the fuzzer's
// own machinery does, which must not be under test, and as one of the ways in which programs call.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace posix_fuzz {

// As syscall(2): -1 and errno, or the result.
inline long raw_call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0,
                     long f = 0) {
#if defined(__x86_64__)
  long result = 0;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
#elif defined(__aarch64__)
  register long x8 __asm__("x8") = number;
  register long result __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0"
                   : "+r"(result)
                   : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                   : "memory");
#else
#error "posix_fuzz knows no system call instruction of this processor"
#endif
  if (result < 0 && result > -4096) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
}

template <typename Pointer>
long address_of(Pointer* pointer) {
  return reinterpret_cast<long>(pointer);
}

// Sleeps while `word` is `value`, at most that long (negative: for ever), or until a signal.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, long microseconds) {
  timespec limit{microseconds / 1'000'000, microseconds % 1'000'000 * 1000};
  raw_call(SYS_futex, address_of(&word), FUTEX_WAIT, value,
           microseconds < 0 ? 0 : address_of(&limit));
}

inline void futex_wake(std::atomic<std::uint32_t>& word) {
  raw_call(SYS_futex, address_of(&word), FUTEX_WAKE, 1000);
}

}  // namespace posix_fuzz
