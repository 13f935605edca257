#include "bounds/cache_line.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <thread>

namespace leat::bench {
namespace {

constexpr int kSeries = 21;
constexpr int kPasses = 2000;  // of a series

}  // namespace

// Acquire and release: what the one wrote before it passed the line is the other's to read.
void CacheLine::answer() {
  for (std::uint64_t expected = 1;; expected += 2) {
    std::uint64_t seen = 0;
    while ((seen = turn.load(std::memory_order_acquire)) != expected) {
      if (seen == kStop) return;
    }
    turn.store(expected + 1, std::memory_order_release);
  }
}

void CacheLine::pass(std::uint64_t& at) {
  turn.store(at + 1, std::memory_order_release);
  at += 2;
  while (turn.load(std::memory_order_acquire) != at) {
  }
}

double cache_line_round_trip_ns(const CorePair& cores) {
  // What cannot be pinned throws here and not in the threads below.
  for (const int core : cores) std::async(std::launch::async, pin_to_core, core).get();
  CacheLine line;
  std::array<double, kSeries> series{};
  std::thread peer([&] {
    pin_to_core(cores[1]);
    line.answer();
  });
  std::thread measuring([&] {
    pin_to_core(cores[0]);
    std::uint64_t at = 0;
    for (double& nanoseconds : series) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kPasses; ++i) line.pass(at);
      const std::chrono::duration<double, std::nano> took =
          std::chrono::steady_clock::now() - start;
      nanoseconds = took.count() / kPasses;
    }
    line.stop();
  });
  measuring.join();
  peer.join();
  std::ranges::nth_element(series, series.begin() + kSeries / 2);
  return series[kSeries / 2];
}

}  // namespace leat::bench
