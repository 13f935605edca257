// System calls made past the C library, as Go's runtime, static code and assembly make them.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace posix_cases {

// By an instruction of the program's own where that is written here, else by syscall(). Gives -1
// and errno as the C library does.
inline long bare_call(long number, long first = 0, long second = 0, long third = 0, long fourth = 0,
                      long fifth = 0, long sixth = 0) {
#ifdef __x86_64__
  long result = number;
  register long r10 asm("r10") = fourth;
  register long r8 asm("r8") = fifth;
  register long r9 asm("r9") = sixth;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(first), "S"(second), "d"(third), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
#else
  return syscall(number, first, second, third, fourth, fifth, sixth);
#endif
}

}  // namespace posix_cases
