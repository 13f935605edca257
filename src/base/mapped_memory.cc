#include "base/mapped_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <string>

#include "base/system_error.h"

namespace leat::detail {
namespace {

std::byte* map(std::size_t bytes, int protection, int flags, int fd) {
  void* data = mmap(nullptr, bytes, protection, flags, fd, 0);
  if (data == MAP_FAILED) throw system_error("mmap(" + std::to_string(bytes) + " bytes)", errno);
  return static_cast<std::byte*>(data);
}

}  // namespace

MappedMemory MappedMemory::anonymous(std::size_t bytes) {
  return {map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1), bytes};
}

MappedMemory MappedMemory::of_file(int fd, std::size_t bytes, Protection protection) {
  const int prot = protection == Protection::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
  return {map(bytes, prot, MAP_SHARED, fd), bytes};
}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedMemory::~MappedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace leat::detail
