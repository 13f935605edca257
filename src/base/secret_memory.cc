#include "base/secret_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/system_error.h"

namespace leat::detail {

SecretMemory::SecretMemory(std::size_t bytes)
    : memory_(MappedMemory::anonymous(bytes)), bytes_(bytes) {
  const auto all = memory_.span();
  if (mlock(all.data(), all.size()) != 0) throw system_error("mlock of memory for keys", errno);
  // Without these the memory would be less hidden, and the program none the worse: kernels before
  // 4.14 have no MADV_WIPEONFORK.
  madvise(all.data(), all.size(), MADV_DONTDUMP);
  madvise(all.data(), all.size(), MADV_WIPEONFORK);
}

void SecretMemory::wipe() noexcept {
  if (memory_.data() != nullptr) explicit_bzero(memory_.data(), memory_.size());
}

}  // namespace leat::detail
