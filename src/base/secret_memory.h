// Memory for keys: never written to swap, to a core dump or into a child of fork(), and wiped
// before it is freed.
#pragma once

#include <cstddef>
#include <span>

#include "base/mapped_memory.h"

namespace leat::detail {

class SecretMemory {
 public:
  // Zeroed. Throws kResource if the system has no memory or does not allow more of it to be locked.
  explicit SecretMemory(std::size_t bytes);
  SecretMemory(SecretMemory&&) noexcept = default;
  SecretMemory& operator=(SecretMemory&&) = delete;
  ~SecretMemory() { wipe(); }

  std::span<std::byte> span() const noexcept { return memory_.span().first(bytes_); }
  void wipe() noexcept;

 private:
  MappedMemory memory_;
  std::size_t bytes_;
};

}  // namespace leat::detail
