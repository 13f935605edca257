// The memory that the two queue pairs of a shm connection share. Both sides map it; every word is
// written by one side only, except the two flags that a sleeper sets and its waker clears. A peer
// may write anything at any time, so whoever reads a word copies it once and checks the copy.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace leat::detail::shm {

inline constexpr std::size_t kCacheLine = 64;

// One arrival. `sequence` is written last, with release order; the receiver waits for the value
// that is due at this place, so that no head or tail is shared. Up to kPayloadBytes ride along, so
// that a small message is one cache line.
struct alignas(kCacheLine) CompletionEntry {
  static constexpr std::size_t kPayloadBytes = 48;

  std::atomic<std::uint32_t> sequence;
  std::atomic<std::uint32_t> immediate;
  std::atomic<std::uint32_t> bytes;
  std::atomic<std::uint32_t> kind;  // EntryKind, and from bit 8 the bytes of payload
  std::byte payload[kPayloadBytes];
};
static_assert(sizeof(CompletionEntry) == kCacheLine);

enum EntryKind : std::uint32_t { kEntrySend = 1, kEntryImmediate = 2 };

// A posted receive with a buffer for sends.
struct ReceiveEntry {
  std::atomic<std::uint64_t> address;
  std::atomic<std::uint32_t> bytes;
  std::atomic<std::uint32_t> key;
};

// What one direction shares beside its two rings; each line has one writer.
struct Flow {
  alignas(kCacheLine) std::atomic<std::uint64_t> posted;  // receives posted ever; by the receiver
  alignas(kCacheLine) std::atomic<std::uint32_t> receiver_armed;  // wake me at an arrival
  alignas(kCacheLine) std::atomic<std::uint32_t> sender_armed;    // wake me when there is room
  alignas(kCacheLine) std::atomic<std::uint32_t> closed;  // by the sender: it is gone or in error
};

// A direction: Flow, then `depth` CompletionEntry, then `depth` ReceiveEntry. Depth is a power of
// two.
struct Direction {
  Flow* flow = nullptr;
  CompletionEntry* completions = nullptr;
  ReceiveEntry* receives = nullptr;
  std::uint32_t mask = 0;

  static constexpr std::size_t bytes(std::size_t depth) {
    const std::size_t used =
        sizeof(Flow) + depth * (sizeof(CompletionEntry) + sizeof(ReceiveEntry));
    return (used + kCacheLine - 1) / kCacheLine * kCacheLine;  // another one may follow
  }
  // `memory` is zeroed when new, aligned to a cache line and holds bytes(depth).
  static Direction at(std::byte* memory, std::uint32_t depth) {
    Direction direction;
    direction.flow = reinterpret_cast<Flow*>(memory);
    memory += sizeof(Flow);
    direction.completions = reinterpret_cast<CompletionEntry*>(memory);
    memory += depth * sizeof(CompletionEntry);
    direction.receives = reinterpret_cast<ReceiveEntry*>(memory);
    direction.mask = depth - 1;
    return direction;
  }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace leat::detail::shm
