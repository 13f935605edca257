#include "tick_clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace leat::bench {
namespace {

// Whether the counter runs at one speed in all power states, and so is the same on all cores.
bool has_invariant_counter() {
#if defined(__x86_64__)
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kInvariantTsc = 1U << 8;
  return __get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) != 0 && (edx & kInvariantTsc) != 0;
#else
  return false;
#endif
}

}  // namespace

TickClock::TickClock() : cycle_counter_(has_invariant_counter()) {
  using Steady = std::chrono::steady_clock;
  constexpr std::uint64_t kReadsAtOnce = 1000;
  const auto start = Steady::now();
  const std::uint64_t start_ticks = now();
  std::uint64_t reads = 0;
  std::uint64_t last_ticks = start_ticks;
  while (Steady::now() - start < std::chrono::milliseconds(20)) {
    for (std::uint64_t i = 0; i < kReadsAtOnce; ++i) last_ticks = now();
    reads += kReadsAtOnce;
  }
  const std::chrono::duration<double, std::micro> elapsed = Steady::now() - start;
  const std::uint64_t ticks = now() - start_ticks;
  if (cycle_counter_) us_per_tick_ = elapsed.count() / static_cast<double>(ticks);
  read_ns_ = microseconds(last_ticks - start_ticks) * 1e3 / static_cast<double>(reads);
}

}  // namespace leat::bench
