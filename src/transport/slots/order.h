// Brings the messages of one context, found in any order, into the order of their sending. Pure.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "transport/slots/header.h"
#include "transport/slots/slots.h"

namespace leat::detail {

class SlotOrder {
 public:
  // `first`: the place of the first message; for tests, which begin where numbers wrap around.
  explicit SlotOrder(unsigned slots = kMinSlots, std::uint32_t first = 0)
      : slots_(slots),
        mask_(std::bit_ceil(slots) - 1),
        next_(first),
        edge_(first),
        entries_(mask_ + 1U, Entry{.here = false}) {}

  struct Entry {
    SlotRun run;
    std::uint32_t bytes = 0;
    SlotKind kind = SlotKind::kMessage;
    bool here = true;
  };

  // The same for what is in its turn, as nearly all are. False: it may still be put().
  [[nodiscard]] bool append(std::uint32_t place, const Entry& entry) {
    if (place != edge_ || beyond_ != 0 || edge_ - next_ >= slots_) [[unlikely]]
      return false;
    entries_[edge_++ & mask_] = entry;
    return true;
  }
  // A message was found. False: it cannot be, one with that place was here or its place is beyond
  // what the slots can hold.
  [[nodiscard]] bool put(std::uint32_t place, const Entry& entry) {
    if (append(place, entry)) return true;
    if (!misses(place)) return false;
    entries_[place & mask_] = entry;
    ++beyond_;
    for (; beyond_ != 0 && entries_[edge_ & mask_].here && edge_ - next_ < slots_; ++edge_)
      --beyond_;
    return true;
  }

  // Whether a message with that place would be taken.
  bool misses(std::uint32_t place) const {
    return place - next_ < slots_ && !entries_[place & mask_].here;
  }

  bool waiting() const { return next_ != edge_; }
  const Entry& front() const { return entries_[next_ & mask_]; }
  // The one `ahead` behind the front, or null.
  const Entry* waiting(std::uint32_t ahead) const {
    return edge_ - next_ > ahead ? &entries_[(next_ + ahead) & mask_] : nullptr;
  }
  // Requires waiting().
  Entry take() {
    Entry& at = entries_[next_++ & mask_];
    at.here = false;
    return at;
  }

  // The first place that was not found yet, and whether later ones were.
  std::uint32_t edge() const { return edge_; }
  bool has_hole() const { return beyond_ != 0; }

 private:
  unsigned slots_;
  std::uint32_t mask_;
  std::uint32_t next_;        // to be handed out
  std::uint32_t edge_;        // [next_, edge_) are here
  std::uint32_t beyond_ = 0;  // how many from edge_ on are here
  std::vector<Entry> entries_;
};

}  // namespace leat::detail
