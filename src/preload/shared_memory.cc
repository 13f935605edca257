#include "preload/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "preload/real.h"

namespace leat::preload {

int new_memory(const Address& connector, const Address& acceptor) noexcept {
  const int memfd = memfd_create("leat-connection", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memfd < 0) return -1;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): fcntl's argument
  void* const seals = reinterpret_cast<void*>(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  if (ftruncate(memfd, kMemoryBytes) == 0 && real().fcntl(memfd, F_ADD_SEALS, seals) == 0) {
    void* memory = mmap(nullptr, kHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    if (memory != MAP_FAILED) {
      auto* header = static_cast<SharedMemory*>(memory);
      header->magic = kMemoryMagic;
      header->version = kMemoryVersion;
      header->connector = connector;
      header->acceptor = acceptor;
      munmap(memory, kHeaderBytes);
      return memfd;
    }
  }
  real().close(memfd);
  return -1;
}

}  // namespace leat::preload
