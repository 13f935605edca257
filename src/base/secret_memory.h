// Memory for keys: never written to swap, a core dump or a child of fork(), and wiped before it
// goes.
#pragma once

#include <cstddef>
#include <span>

#include "base/mapped_memory.h"

namespace leat::detail {

class SecretMemory {
 public:
  // Zeroed. Throws kResource if the system has no memory or lets no more of it be locked.
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
