// A statistic with one writer at a time and readers in any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace leat::detail {

class Counter {
 public:
  // A load and a store instead of an atomic addition, because there is one writer. Relaxed: readers
  // want the number, and no order with other memory.
  void add(std::uint64_t n) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

}  // namespace leat::detail
