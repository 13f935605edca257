#include "preload/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/memfd.h"
#include "preload/real.h"

namespace leat::preload {

void* new_sealed_memory(const char* name, std::size_t bytes, int& memfd) noexcept {
  memfd = leat::detail::new_memfd(name);
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
