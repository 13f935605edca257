// Private memory for messages on their way through a decorator, kept for the messages after them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace leat::detail {

class KeptBuffer {
 public:
  // Larger ones are given back to the system after their use.
  static constexpr std::size_t kKeptBytes = std::size_t{1} << 20;

  // At least that much, kept for the next use; what was there before is lost. Throws
  // std::bad_alloc, and has changed nothing.
  std::span<std::byte> take(std::size_t wanted) {
    if (bytes_ < wanted) {
      const std::size_t rounded = std::max(kLeastBytes, std::bit_ceil(wanted));
      memory_ = std::make_unique_for_overwrite<std::byte[]>(rounded);
      bytes_ = rounded;
    }
    return {memory_.get(), wanted};
  }
  void shrink() noexcept {
    if (bytes_ <= kKeptBytes) return;
    memory_.reset();
    bytes_ = 0;
  }

 private:
  static constexpr std::size_t kLeastBytes = 4096;

  std::unique_ptr<std::byte[]> memory_;
  std::size_t bytes_ = 0;
};

// The buffers of deliveries, by ticket. Threads: the receive side's.
class DeliveryBuffers {
 public:
  // The next buffer, before its message is taken off the inner transport: a failure then loses
  // nothing. Throws std::bad_alloc.
  std::uint64_t next() {
    if (free_.empty()) {
      buffers_.reserve(buffers_.size() + 1);
      free_.reserve(buffers_.size() + 1);  // give_back() has room for every ticket
      free_.push_back(buffers_.size());
      buffers_.emplace_back();
    }
    return free_.back();
  }
  // Memory of the buffer that next() named. Throws std::bad_alloc.
  std::span<std::byte> take(std::size_t bytes) {
    const auto memory = buffers_[free_.back()].take(bytes);
    free_.pop_back();
    return memory;
  }
  void give_back(std::uint64_t ticket) noexcept {
    buffers_[ticket].shrink();
    free_.push_back(ticket);
  }

 private:
  std::vector<KeptBuffer> buffers_;
  std::vector<std::uint64_t> free_;  // tickets; the last one is used next
};

}  // namespace leat::detail
