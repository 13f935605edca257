// Files in memory.
#pragma once

#include <sys/mman.h>

#include <cerrno>

namespace leat::detail {

// `declared`: a flag that older kernels do not know and do not need.
inline int new_declared_memfd(const char* name, unsigned declared) noexcept {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int memfd = memfd_create(name, kFlags | declared);
  return memfd >= 0 || errno != EINVAL ? memfd : memfd_create(name, kFlags);
}

// A file in memory that can be sealed and is never executed, which must be requested where
// vm.memfd_noexec is 2. As memfd_create(2): -1 and errno on failure. Closed by exec.
inline int new_memfd(const char* name) noexcept {
  constexpr unsigned kNoExecution = 8;  // MFD_NOEXEC_SEAL, which Linux knows from 6.3 on
  return new_declared_memfd(name, kNoExecution);
}

// The same for a program, which vm.memfd_noexec = 2 forbids: then errno is EACCES.
inline int new_program_memfd(const char* name) noexcept {
  constexpr unsigned kExecution = 16;  // MFD_EXEC, known as long
  return new_declared_memfd(name, kExecution);
}

}  // namespace leat::detail
