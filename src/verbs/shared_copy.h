// Copies into and out of memory that another process uses concurrently.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace leat::detail {

// Copies at most 64 bytes in few instructions: two overlapping moves of the largest size that fits.
inline void copy_small(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto both_ends = [&](auto word) {
    decltype(word) head;
    decltype(word) tail;
    std::memcpy(&head, from, sizeof word);
    std::memcpy(&tail, from + bytes - sizeof word, sizeof word);
    std::memcpy(to, &head, sizeof word);
    std::memcpy(to + bytes - sizeof word, &tail, sizeof word);
  };
  struct Half {
    std::uint64_t words[2];
  };
  struct Line {
    std::uint64_t words[4];
  };
  if (bytes >= sizeof(Line)) {
    both_ends(Line{});
  } else if (bytes >= sizeof(Half)) {
    both_ends(Half{});
  } else if (bytes >= 8) {
    both_ends(std::uint64_t{});
  } else if (bytes >= 4) {
    both_ends(std::uint32_t{});
  } else {
    for (std::size_t i = 0; i < bytes; ++i) to[i] = from[i];
  }
}

// Copies any size. A single aligned 8-byte word (a counter, a bitmap word) is moved by one
// instruction, so that the other side never sees half of it. Longer runs of words are moved by
// memcpy, whose vector moves keep aligned words whole on the machines that leat supports.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto bits = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  if (bytes == 8 && (bits & 7) == 0) {
    // Relaxed: the caller's fence, or the completion that follows, orders it.
    auto* source = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(from));
    const std::uint64_t word =
        std::atomic_ref<std::uint64_t>(*source).load(std::memory_order_relaxed);
    std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(to))
        .store(word, std::memory_order_relaxed);
  } else if (bytes <= 64) {
    copy_small(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace leat::detail
