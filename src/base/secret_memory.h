// Memory for keys: never written to swap, to a core dump or into a child of fork(), and wiped
// before it is freed.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "base/mapped_memory.h"

namespace leat::detail {

class SecretMemory {
 public:
  // Zeroed. Throws kResource if the system has no memory or does not allow more of it to be locked.
  explicit SecretMemory(std::size_t bytes);
  // For keys that stay, in a process that never forks: pages that no other process, root's
  // included, and no mistake of the kernel can read, because they are mapped nowhere else
  // (memfd_secret(2)); where Linux has none (before 5.14, or not enabled), the same as above.
  // Throws as that does.
  static SecretMemory lasting(std::size_t bytes);
  SecretMemory(SecretMemory&&) noexcept = default;
  SecretMemory& operator=(SecretMemory&&) = delete;
  ~SecretMemory() { wipe(); }

  std::span<std::byte> span() const noexcept { return memory_.span().first(bytes_); }
  void wipe() noexcept;

 private:
  SecretMemory(MappedMemory memory, std::size_t bytes)
      : memory_(std::move(memory)), bytes_(bytes) {}

  MappedMemory memory_;
  std::size_t bytes_;
};

}  // namespace leat::detail
