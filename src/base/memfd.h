// Files in memory.
#pragma once

#include <sys/mman.h>

#include <cerrno>

namespace leat::detail {

// A file in memory that can be sealed and is never executed, which must be requested where
// vm.memfd_noexec is 2. As memfd_create(2): -1 and errno on failure. Closed by exec.
inline int new_memfd(const char* name) noexcept {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  constexpr unsigned kNoExecution = 8;  // MFD_NOEXEC_SEAL, which Linux knows from 6.3 on
  const int memfd = memfd_create(name, kFlags | kNoExecution);
  return memfd >= 0 || errno != EINVAL ? memfd : memfd_create(name, kFlags);
}

}  // namespace leat::detail
