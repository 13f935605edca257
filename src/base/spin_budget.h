// How long to spin before sleeping, learnt from whether spinning pays.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace leat::detail {

// Spinning for an answer is quickest while who answers has a processor of its own. Where processes
// share fewer it keeps the answer from being made. So a wait that had to sleep after all halves the
// next ones, one that did not doubles them, up to what the user allows; and now and then one spins
// that long whatever came before, because with short spins alone nobody would see that it pays
// again.
//
// Threads: any; their waits share what was learnt.
class SpinBudget {
 public:
  // Zero: never spins. Negative: spins without end, and nothing is learnt.
  explicit SpinBudget(std::chrono::microseconds most) : most_(most), now_ns_(most_.count()) {}

  bool endless() const { return most_.count() < 0; }

  // Of the wait that begins. Not for an endless one.
  std::chrono::nanoseconds next() {
    // Relaxed, here and below: a guess.
    if (waits_.fetch_add(1, std::memory_order_relaxed) % kWaitsPerTrial == 0) return most_;
    return std::chrono::nanoseconds(now_ns_.load(std::memory_order_relaxed));
  }
  // The end of a wait: whether it came without sleeping.
  void learn(bool paid) {
    if (endless()) return;
    const std::int64_t now = now_ns_.load(std::memory_order_relaxed);
    const std::int64_t least = std::min(most_.count(), kLeast.count());
    now_ns_.store(paid ? std::min(now * 2, most_.count()) : std::max(now / 2, least),
                  std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t kWaitsPerTrial = 64;
  static constexpr std::chrono::nanoseconds kLeast{500};  // so that doubling gets on

  const std::chrono::nanoseconds most_;
  std::atomic<std::int64_t> now_ns_;
  std::atomic<std::uint32_t> waits_{1};
};

}  // namespace leat::detail
