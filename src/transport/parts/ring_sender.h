// The sender's end of a ring buffer: where the next message goes, and what has come back. Pure. For
// the rings of transport ring, and for staging, whose receiver is the device.
//
// Positions count units ever used and only grow; a position modulo the ring's size, a power of two,
// is a place. Messages are contiguous: one that does not fit before the end starts at the
// beginning, and the rest of the lap counts as used. Space comes back in order, as one position for
// many messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/parts/immediate.h"

namespace leat::detail {

// Units that a message of `bytes` takes; an empty one takes a unit too.
constexpr std::uint64_t units_of(std::size_t bytes) {
  return bytes == 0 ? 1 : (bytes - 1) / kPlaceUnitBytes + 1;  // as it cannot overflow
}

class RingSender {
 public:
  // `units`: a power of two.
  explicit RingSender(std::uint64_t units = 1) : units_(units) {}

  struct Place {
    std::uint64_t unit;  // where the message starts
    std::uint64_t end;   // position after it
  };

  // Where `units` (1 .. size / kPieceShare) would go, if there is room now.
  std::optional<Place> place(std::uint64_t units) const {
    const std::uint64_t at = used_ & (units_ - 1);
    const std::uint64_t skipped = at + units <= units_ ? 0 : units_ - at;
    const std::uint64_t end = used_ + skipped + units;
    if (end - returned_ > units_) return std::nullopt;
    return Place{skipped == 0 ? at : 0, end};
  }
  // The same for one, which fits before any end.
  std::optional<Place> place_of_one() const {
    if (used_ - returned_ >= units_) return std::nullopt;
    return Place{used_ & (units_ - 1), used_ + 1};
  }
  void take(const Place& place) { used_ = place.end; }

  // The receiver's word that everything before `position` is free. False: it cannot be.
  [[nodiscard]] bool take_back(std::uint64_t position) {
    if (position - returned_ > used_ - returned_) return false;
    returned_ = position;
    return true;
  }
  std::uint64_t returned() const { return returned_; }

  std::uint64_t units() const { return units_; }

 private:
  std::uint64_t units_;
  std::uint64_t used_ = 0;
  std::uint64_t returned_ = 0;
};

}  // namespace leat::detail
