// A cache line that two cores pass to each other: how near they are.
#pragma once

#include <atomic>
#include <cstdint>

#include "machine.h"

namespace leat::bench {

// Even turns belong to the measuring side, odd ones to its peer.
struct alignas(64) CacheLine {
  static constexpr std::uint64_t kStop = ~std::uint64_t{0};

  std::atomic<std::uint64_t> turn{0};

  void answer();                 // the peer: until stop()
  void pass(std::uint64_t& at);  // there and back
  void stop() { turn.store(kStop, std::memory_order_release); }
};

// Nanoseconds there and back, the median of short series; milliseconds of two threads of its own.
double cache_line_round_trip_ns(const CorePair& cores);

}  // namespace leat::bench
