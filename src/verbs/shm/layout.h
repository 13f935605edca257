// The memory that the two queue pairs of a shm connection share. Both sides map it. Every word is
// written by one side only, except the two flags that a sleeper sets and its waker clears. A peer
// may write anything at any time, so a reader copies each word once and checks the copy.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace leat::detail::shm {

inline constexpr std::size_t kCacheLine = 64;

// One arrival. `sequence` is written last, with release order; the receiver waits for the value
// that is due at this place, so head and tail need not be shared. Up to kPayloadBytes travel in the
// entry, so that a small message occupies one cache line.
struct alignas(kCacheLine) CompletionEntry {
  static constexpr std::size_t kPayloadBytes = 48;

  std::atomic<std::uint32_t> sequence;
  std::atomic<std::uint32_t> immediate;
  std::atomic<std::uint32_t> bytes;
  std::atomic<std::uint32_t> payload_bytes;
  std::byte payload[kPayloadBytes];
};
static_assert(sizeof(CompletionEntry) == kCacheLine);

// What one direction shares beside its ring. Each cache line has one writer.
struct Flow {
  alignas(kCacheLine) std::atomic<std::uint64_t> posted;  // receives posted so far; by the receiver
  alignas(kCacheLine) std::atomic<std::uint32_t> receiver_armed;  // notify at an arrival
  alignas(kCacheLine) std::atomic<std::uint32_t> sender_armed;    // notify when there is room
  alignas(kCacheLine) std::atomic<std::uint32_t> closed;  // by the sender: it is gone or in error
};

// A direction: Flow, then `depth` CompletionEntry. Depth is a power of two.
struct Direction {
  Flow* flow = nullptr;
  CompletionEntry* completions = nullptr;
  std::uint32_t mask = 0;

  static constexpr std::size_t bytes(std::size_t depth) {
    return sizeof(Flow) + depth * sizeof(CompletionEntry);
  }
  // `memory` is zeroed when new, aligned to a cache line and holds bytes(depth).
  static Direction at(std::byte* memory, std::uint32_t depth) {
    Direction direction;
    direction.flow = reinterpret_cast<Flow*>(memory);
    direction.completions = reinterpret_cast<CompletionEntry*>(memory + sizeof(Flow));
    direction.mask = depth - 1;
    return direction;
  }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace leat::detail::shm
