// How several threads send over one channel.
#pragma once

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>

#include "leat/error.h"

namespace leat::adapters {

// Threads: any.
class TurnsAtSending {
 public:
  // Tries under the lock of the send side, and yields, then naps, between tries: room often comes
  // without an event, and a sender that waited inside the channel would keep the others out.
  template <typename Meanwhile, typename Try>
  void persist(const char* what, std::chrono::milliseconds limit, Meanwhile&& meanwhile,
               Try&& try_once) {
    const auto done = [&] {
      const std::lock_guard lock(mutex_);
      return try_once();
    };
    if (done()) [[likely]]
      return;
    const Clock::time_point start = Clock::now();
    std::chrono::microseconds nap = kFirstNap;
    while (!done()) {
      if (meanwhile()) continue;
      const auto took = Clock::now() - start;
      if (limit.count() >= 0 && took > limit)
        throw Error(ErrorCode::kTimeout, std::string(what) + " timed out after " +
                                             std::to_string(limit.count()) + " ms");
      if (took < kYields) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(nap);
        nap = std::min(2 * nap, kLongestNap);
      }
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kYields{50}, kFirstNap{20}, kLongestNap{1000};

  std::mutex mutex_;
};

}  // namespace leat::adapters
