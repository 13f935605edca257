#include "preload/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "preload/real.h"

namespace leat::preload {

namespace {

// Nobody executes it, and where vm.memfd_noexec is 2 the kernel wants to hear that.
int new_memfd() {
  constexpr const char* kName = "leat-connection";
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  constexpr unsigned kNoExecution = 8;  // MFD_NOEXEC_SEAL, which Linux knows from 6.3 on
  const int memfd = memfd_create(kName, kFlags | kNoExecution);
  return memfd >= 0 || errno != EINVAL ? memfd : memfd_create(kName, kFlags);
}

}  // namespace

SharedMemory* new_memory(int& memfd) noexcept {
  memfd = new_memfd();
  if (memfd < 0) return nullptr;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): fcntl's argument
  void* const seals = reinterpret_cast<void*>(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  void* memory = MAP_FAILED;
  if (ftruncate(memfd, kMemoryBytes) == 0 && real().fcntl(memfd, F_ADD_SEALS, seals) == 0)
    memory =
        mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memfd, 0);
  if (memory == MAP_FAILED) {
    real().close(std::exchange(memfd, -1));
    return nullptr;
  }
  return static_cast<SharedMemory*>(memory);
}

}  // namespace leat::preload
