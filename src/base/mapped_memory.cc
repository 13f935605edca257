#include "base/mapped_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "base/system_error.h"

namespace leat::detail {
namespace {

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1; older C libraries do not name it
#endif

std::byte* map(std::byte* where, std::size_t bytes, int protection, int flags, int fd) {
  void* data = mmap(where, bytes, protection, flags, fd, 0);
  if (data == MAP_FAILED) throw system_error("mmap(" + std::to_string(bytes) + " bytes)", errno);
  return static_cast<std::byte*>(data);
}

// Address space without memory, from a multiple of kHugePageBytes on.
std::byte* reserve_aligned(std::size_t bytes) {
  constexpr std::size_t kAlignment = MappedMemory::kHugePageBytes;
  constexpr std::size_t kPageBytes = 4096;  // at least; a peer's file may end anywhere
  bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  std::byte* space =
      map(nullptr, bytes + kAlignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(space) % kAlignment;
  if (before != 0) munmap(space, before);
  munmap(space + before + bytes, kAlignment - before);
  return space + before;
}

}  // namespace

MappedMemory MappedMemory::anonymous(std::size_t bytes) {
  return {map(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1), bytes};
}

MappedMemory MappedMemory::of_file(int fd, std::size_t bytes, Protection protection) {
  const int prot = protection == Protection::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
  if (bytes < kHugePageBytes) return {map(nullptr, bytes, prot, MAP_SHARED, fd), bytes};
  MappedMemory memory(reserve_aligned(bytes), bytes);
  map(memory.data(), bytes, prot, MAP_SHARED | MAP_FIXED, fd);
  return memory;
}

bool MappedMemory::take_huge_page(std::size_t offset) noexcept {
  const std::size_t start = offset / kHugePageBytes * kHugePageBytes;
  if (start + kHugePageBytes > bytes_) return false;
  // The kernel puts pages together only where there is at least one.
  (void)*static_cast<volatile const std::byte*>(data_ + start);
  return madvise(data_ + start, kHugePageBytes, MADV_COLLAPSE) == 0;
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
