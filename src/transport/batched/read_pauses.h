// How long a receiver of transport batched waits between two reads of the bitmap while messages
// flow, so that each read finds many.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace leat::detail {

// A read that finds fewer messages came too early: a longer pause before the next one.
inline constexpr unsigned kGoodBatch = 32;

class ReadPauses {
 public:
  using Nanoseconds = std::chrono::nanoseconds;

  // The next read must wait. Without a pause the clock is not looked at.
  bool is_early() const { return length_ != kNone && Clock::now() < next_; }
  Nanoseconds length() const { return length_; }

  void stop() { length_ = kNone; }
  void shorten() { length_ /= 2; }
  void lengthen(Nanoseconds least, Nanoseconds most) {
    length_ = std::clamp(2 * length_, least, most);
  }
  // The pause begins now, and lasts `most` at most.
  void begin(Nanoseconds most) {
    if (length_ != kNone) next_ = Clock::now() + std::min(length_, most);
  }

 private:
  static constexpr Nanoseconds kNone{0};

  Nanoseconds length_ = kNone;
  Clock::time_point next_;
};

}  // namespace leat::detail
