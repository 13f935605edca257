#include "base/secret_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "base/fd.h"
#include "leat/error.h"

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447  // Linux 5.14; C libraries have no function for it
#endif

namespace leat::detail {

SecretMemory::SecretMemory(std::size_t bytes)
    : memory_(MappedMemory::anonymous(bytes)), bytes_(bytes) {
  const auto all = memory_.span();
  if (mlock(all.data(), all.size()) != 0) {
    // With a limit of 0 it is EPERM, and with a larger one ENOMEM.
    throw Error(ErrorCode::kResource,
                "mlock of memory for keys failed: " +
                    std::error_code(errno, std::generic_category()).message(),
                "Raise the limit of locked memory: ulimit -l unlimited, limits.conf, or "
                "LimitMEMLOCK= in systemd.",
                errno);
  }
  // Without these the memory would be less hidden, and the program none the worse: kernels before
  // 4.14 have no MADV_WIPEONFORK.
  madvise(all.data(), all.size(), MADV_DONTDUMP);
  madvise(all.data(), all.size(), MADV_WIPEONFORK);
}

SecretMemory SecretMemory::lasting(std::size_t bytes) {
  const Fd file(static_cast<int>(syscall(SYS_memfd_secret, O_CLOEXEC)));
  if (!file || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return SecretMemory(bytes);
  try {
    // Locked, and left out of core dumps, by its nature.
    return {MappedMemory::of_file(file.get(), bytes, MappedMemory::Protection::kReadWrite), bytes};
  } catch (const Error&) {
    return SecretMemory(bytes);  // which says what is lacking
  }
}

void SecretMemory::wipe() noexcept {
  if (memory_.data() != nullptr) explicit_bzero(memory_.data(), memory_.size());
}

}  // namespace leat::detail
