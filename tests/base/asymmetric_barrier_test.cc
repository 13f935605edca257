// Dekker's handshake: of a sleeper and a waker at least one sees what the other has stored.
#include "base/asymmetric_barrier.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/pause.h"
#include "support/scale.h"

namespace leat::detail {
namespace {

constexpr int kWords = 4;

struct Round {
  alignas(64) std::atomic<int> armed[kWords];
  alignas(64) std::atomic<int> published[kWords];
};

// One barrier for what several sleepers' flags need; nobody may be missed by it.
TEST(AsymmetricBarrier, JoinedToOneIsStillPassedBetweenStoresAndLoads) {
  const bool asymmetric = register_for_heavy_barriers();
  const int rounds = static_cast<int>(scaled(20'000));
  std::atomic<int> begun{0};
  std::atomic<int> done{0};
  Round round{};
  bool seen[kWords] = {};
  std::thread waker([&] {
    for (int i = 1; i <= rounds; ++i) {
      for (int spins = 0; begun.load(std::memory_order_acquire) != i; ++spins)
        if (spins > 1000) std::this_thread::yield();
      for (int k = 0; k < kWords; ++k) {
        round.published[k].store(i, std::memory_order_relaxed);
        light_barrier(asymmetric);
        seen[k] = round.armed[k].load(std::memory_order_relaxed) == i;
      }
      done.store(i, std::memory_order_release);
    }
  });
  int missed = 0;
  for (int i = 1; i <= rounds; ++i) {
    begun.store(i, std::memory_order_release);
    // Until the other has noticed, more or less: so that both are at it at the same time.
    for (int k = i % 64; k > 0; --k) pause();
    {
      const JoinedBarriers barrier;
      for (int k = 0; k < kWords; ++k) {
        const JoinedBarriers inner;  // a caller's caller may have joined them, too
        round.armed[k].store(i, std::memory_order_relaxed);
        heavy_barrier(asymmetric);
      }
    }
    bool found[kWords];
    for (int k = 0; k < kWords; ++k)
      found[k] = round.published[k].load(std::memory_order_relaxed) == i;
    while (done.load(std::memory_order_acquire) != i) std::this_thread::yield();
    for (int k = 0; k < kWords; ++k) missed += !found[k] && !seen[k] ? 1 : 0;
  }
  waker.join();
  EXPECT_EQ(missed, 0);
}

}  // namespace
}  // namespace leat::detail
