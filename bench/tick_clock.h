// The clock for single round trips: as perftest, the processor's cycle counter where it runs at one
// speed on all cores, because a system clock would cost a good part of a 0.15 us half round trip.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace leat::bench {

class TickClock {
 public:
  // Calibrates against steady_clock for some 20 ms.
  TickClock();

  std::uint64_t now() const noexcept {
#if defined(__x86_64__)
    if (cycle_counter_) return __rdtsc();
#endif
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  double microseconds(std::uint64_t ticks) const noexcept {
    return static_cast<double>(ticks) * us_per_tick_;
  }
  std::string name() const { return cycle_counter_ ? "cycle counter" : "steady clock"; }
  // What one now() costs when called back to back.
  double read_ns() const noexcept { return read_ns_; }

 private:
  bool cycle_counter_ = false;
  double us_per_tick_ = 1e-3;
  double read_ns_ = 0;
};

}  // namespace leat::bench
