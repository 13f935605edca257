// Bundles: small messages of one context that follow each other share a slot of transport batched.
// Each stands behind a word with its size, sealed. A bundle is open while its sender adds to it;
// the sender publishes how far an open one is filled. Pure.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/parts/sealed_word.h"
#include "transport/slots/header.h"

namespace leat::detail {

// The most that a bundle takes of its slot, so that a receiver has memory for one more.
inline constexpr std::size_t kMostBundleBytes = 8192;
// In a smaller slot it does not pay.
inline constexpr std::size_t kLeastBundleBytes = 256;
// Messages above this share of a slot go alone. Where a message of its own costs no request, that
// pays from smaller ones on.
inline constexpr std::size_t kBundleShare = 4;
inline constexpr std::size_t kBundleShareOfSharedMemory = 8;

struct Bundled {
  static constexpr std::size_t kHeadBytes = sizeof(std::uint64_t);
  static constexpr std::size_t room(std::size_t run_bytes) {
    return std::min(run_bytes, kMostBundleBytes) / kHeadBytes * kHeadBytes;
  }
  // What a message takes, its size before it.
  static constexpr std::size_t taken(std::size_t bytes) {
    return kHeadBytes + (bytes + kHeadBytes - 1) / kHeadBytes * kHeadBytes;
  }
};

// What a sender publishes first of all, as one word: how many units (messages of their own, pieces,
// closed bundles) it ever posted, modulo 2^32; and how far the open bundle is filled, in which slot
// of all contexts.
struct Posted {
  std::uint32_t units = 0;
  unsigned open_slot = 0;
  std::size_t open_bytes = 0;  // 0: no bundle is open

  static constexpr unsigned kSlotShift = 52;
  static constexpr unsigned kBytesShift = 32;

  constexpr std::uint64_t word() const {
    return std::uint64_t{open_slot} << kSlotShift |
           std::uint64_t{open_bytes / Bundled::kHeadBytes} << kBytesShift | units;
  }
  static constexpr Posted of(std::uint64_t word) {
    constexpr std::uint64_t kBytesMask = (1ULL << (kSlotShift - kBytesShift)) - 1;
    return {static_cast<std::uint32_t>(word), static_cast<unsigned>(word >> kSlotShift),
            static_cast<std::size_t>(word >> kBytesShift & kBytesMask) * Bundled::kHeadBytes};
  }
};

// Goes through the messages of a bundle, or of the part of one that is known. Its bytes come from
// a peer and may be anything, and may change: each size is read once.
class BundleReader {
 public:
  BundleReader() = default;
  // The messages from `at` to `end` behind `memory`, which is aligned.
  BundleReader(const std::byte* memory, std::size_t at, std::size_t end)
      : memory_(memory), at_(at), end_(end) {}

  bool empty() const { return at_ >= end_; }
  std::size_t at() const { return at_; }
  // Requires !empty(). False: its size is damaged, or beyond the bundle.
  [[nodiscard]] bool next(std::span<const std::byte>& message) {
    const std::byte* head = memory_ + at_;
    // Relaxed: the word that announced it ordered it before.
    const std::uint64_t word =
        std::atomic_ref(*reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(head)))
            .load(std::memory_order_relaxed);
    const std::size_t bytes = number_in(word);
    if (!is_sealed(word) || Bundled::taken(bytes) > end_ - at_) [[unlikely]]
      return false;
    message = {head + Bundled::kHeadBytes, bytes};
    at_ += Bundled::taken(bytes);
    return true;
  }

 private:
  const std::byte* memory_ = nullptr;
  std::size_t at_ = 0;
  std::size_t end_ = 0;
};

}  // namespace leat::detail
