// The receiver's end of one context's ring: what has arrived, in order, and what of it was handed
// out and given back. Pure. The sender's end, and how places follow each other, is in
// parts/ring_sender.h: both ends compute the same places, so the receiver can check every one that
// arrives.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/parts/ring_sender.h"

namespace leat::detail {

// A message larger than this share of its ring travels in pieces. With it, and with space coming
// back at the latest when an eighth of the ring is free again, any piece fits as soon as the
// receiver has caught up: at worst a quarter is lost at the end of the lap, a quarter is needed, an
// eighth is not told yet.
inline constexpr std::uint64_t kPieceShare = 4;
inline constexpr std::uint64_t kReturnShare = 8;

class alignas(64) RingReceiver {
 public:
  // `units`: a power of two. No message is longer than `most_bytes`, nor than a piece.
  explicit RingReceiver(std::uint64_t units = 1, std::uint64_t most_bytes = UINT64_MAX)
      : units_(units),
        most_bytes_(std::min(most_bytes, units / kPieceShare * kPlaceUnitBytes)),
        entries_(64),
        mask_(63) {}

  struct Arrival {
    std::uint64_t end = 0;
    std::uint32_t unit = 0;
    std::uint32_t bytes = 0;
    bool announces = false;  // its 8 bytes are the size of a message that follows in pieces
    bool released = false;
  };

  // Where the sender must have put a message of `units`.
  std::uint64_t due(std::uint64_t units) const {
    const std::uint64_t at = used_ & (units_ - 1);
    return at + units <= units_ ? at : 0;
  }

  // Whether no further arrival can be remembered; then grow(), which may throw std::bad_alloc.
  bool full() const { return tail_ - head_ > mask_; }
  // Doubles; bounded by the ring's units, since each arrival takes one at least.
  void grow() {
    std::vector<Arrival> larger(entries_.size() * 2);
    const std::uint64_t mask = larger.size() - 1;
    for (std::uint64_t i = head_; i != tail_; ++i) larger[i & mask] = entries_[i & mask_];
    entries_.swap(larger);
    mask_ = mask;
  }
  // A message arrived. False: it cannot have, by its place, its size, or because the ring is full.
  // Requires !full().
  [[nodiscard]] bool arrive(std::uint64_t unit, std::size_t bytes, bool announces) {
    std::uint64_t end = 0;
    if (!fits(unit, bytes, end)) return false;
    entries_[tail_++ & mask_] = {end, static_cast<std::uint32_t>(unit),
                                 static_cast<std::uint32_t>(bytes), announces, false};
    used_ = end;
    return true;
  }

  // The same as arrive, hand_out and release at once, for a message of at most a unit. False also
  // while another one waits or is held.
  [[nodiscard]] bool pass(std::uint64_t unit, std::size_t bytes) {
    if (head_ != tail_ || bytes > most_bytes_ || unit != (used_ & (units_ - 1))) return false;
    free_before_ = ++used_;
    return true;
  }

  bool waiting() const { return next_ != tail_; }
  // The oldest arrival not handed out; its ticket is for release. Requires waiting().
  const Arrival& hand_out(std::uint64_t& ticket) {
    ticket = next_;
    return entries_[next_++ & mask_];
  }
  // In any order; once each.
  void release(std::uint64_t ticket) {
    entries_[ticket & mask_].released = true;
    while (head_ != next_ && entries_[head_ & mask_].released)
      free_before_ = entries_[head_++ & mask_].end;
  }
  // Everything before this position is free.
  std::uint64_t free_before() const { return free_before_; }
  std::uint64_t units() const { return units_; }

 private:
  // Whether a message may have arrived there; `end` is then the position after it.
  bool fits(std::uint64_t unit, std::size_t bytes, std::uint64_t& end) const {
    if (bytes > most_bytes_) return false;
    const std::uint64_t units = units_of(bytes);
    const std::uint64_t at = used_ & (units_ - 1);
    const bool wraps = at + units > units_;
    end = used_ + (wraps ? units_ - at : 0) + units;
    return unit == (wraps ? 0 : at) && end - free_before_ <= units_;
  }

  std::uint64_t units_;
  std::uint64_t most_bytes_;
  std::uint64_t used_ = 0;
  std::uint64_t free_before_ = 0;
  // [head_, next_) handed out and not all given back, [next_, tail_) waiting.
  std::uint64_t head_ = 0;
  std::uint64_t next_ = 0;
  std::uint64_t tail_ = 0;
  std::vector<Arrival> entries_;
  std::uint64_t mask_;
};

}  // namespace leat::detail
