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
int new_memfd(const char* name) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  constexpr unsigned kNoExecution = 8;  // MFD_NOEXEC_SEAL, which Linux knows from 6.3 on
  const int memfd = memfd_create(name, kFlags | kNoExecution);
  return memfd >= 0 || errno != EINVAL ? memfd : memfd_create(name, kFlags);
}

}  // namespace

void* new_sealed_memory(const char* name, std::size_t bytes, int& memfd) noexcept {
  memfd = new_memfd(name);
  if (memfd < 0) return nullptr;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): fcntl's argument
  void* const seals = reinterpret_cast<void*>(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  void* memory = MAP_FAILED;
  if (ftruncate(memfd, static_cast<off_t>(bytes)) == 0 &&
      real().fcntl(memfd, F_ADD_SEALS, seals) == 0)
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memfd, 0);
  if (memory == MAP_FAILED) {
    real().close(std::exchange(memfd, -1));
    return nullptr;
  }
  return memory;
}

SharedMemory* new_memory(int& memfd) noexcept {
  return static_cast<SharedMemory*>(new_sealed_memory("leat-connection", kMemoryBytes, memfd));
}

bool is_sealed(int fd) noexcept {
  const int seals = real().fcntl(fd, F_GET_SEALS, nullptr);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

}  // namespace leat::preload
