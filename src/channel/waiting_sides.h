// Remembers on which sides of a channel a thread waits. With a second thread beside it, both would
// wait for ever.
#pragma once

#include <array>
#include <atomic>

#include "verbs/device.h"

namespace leat::detail {

// Relaxed throughout: these flags detect mistakes and order nothing.
class WaitingSides {
 public:
  bool has(Side side) const { return waits_[index(side)].load(std::memory_order_relaxed); }
  // Returns whether another thread waits there.
  bool begin(Side side) { return waits_[index(side)].exchange(true, std::memory_order_relaxed); }
  void end(Side side) { waits_[index(side)].store(false, std::memory_order_relaxed); }

 private:
  static std::size_t index(Side side) { return side == Side::kSend ? 0 : 1; }

  std::array<std::atomic<bool>, 2> waits_{};
};

}  // namespace leat::detail
