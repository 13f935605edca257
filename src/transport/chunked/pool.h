// The receive regions of one context: where the next part of a transfer goes, and what has come
// back. Pure.
//
// A pool is `count` regions of one size, used one after the other, round and round. Parts fill a
// region one behind the other; one that does not fit into the rest of it goes to the start of the
// next, and the rest counts as used. A part is never larger than a region, so it is contiguous.
// Positions count units ever used and only grow. Space comes back in order, as one position for
// many parts. Both ends compute the same places, so the receiver can check every one that arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "transport/chunked/header.h"
#include "transport/parts/immediate.h"

namespace leat::detail {

inline constexpr unsigned kLeastRegions = 2;  // with one, the rest of a region could never be left
inline constexpr unsigned kMostRegions = 64;

struct RegionShape {
  std::uint64_t region_units = 1;
  std::uint64_t count = kLeastRegions;

  std::uint64_t units() const { return region_units * count; }
  // The largest part, without its header.
  std::size_t part_bytes() const {
    return (region_units - 1) * kPlaceUnitBytes;  // the header takes a unit
  }
  // Units that a part with `bytes` takes; bytes is at most part_bytes().
  static constexpr std::uint64_t units_of(std::size_t bytes) {
    return 1 + (bytes + kPlaceUnitBytes - 1) / kPlaceUnitBytes;
  }
  // Where a part of `units` goes after position `used`: its position.
  std::uint64_t position(std::uint64_t used, std::uint64_t units) const {
    const std::uint64_t in_region = used % region_units;
    return in_region + units <= region_units ? used : used + region_units - in_region;
  }
};

// The sender's end.
class PoolSender {
 public:
  explicit PoolSender(RegionShape shape = {}) : shape_(shape) {}

  struct Place {
    std::uint64_t unit = 0;  // of its header, from the pool's start
    std::uint64_t end = 0;   // position after it
  };

  // Where a part with `bytes` would go, if there is room now.
  std::optional<Place> place(std::size_t bytes) const {
    const std::uint64_t units = RegionShape::units_of(bytes);
    const std::uint64_t at = shape_.position(used_, units);
    if (at + units - returned_ > shape_.units()) return std::nullopt;
    return Place{at % shape_.units(), at + units};
  }
  void take(const Place& place) { used_ = place.end; }
  // The receiver's word that everything before `position` is free. False: it cannot be.
  [[nodiscard]] bool take_back(std::uint64_t position) {
    if (position - returned_ > used_ - returned_) return false;
    returned_ = position;
    return true;
  }
  std::uint64_t returned() const { return returned_; }
  const RegionShape& shape() const { return shape_; }

 private:
  RegionShape shape_;
  std::uint64_t used_ = 0;
  std::uint64_t returned_ = 0;
};

// The receiver's end: which parts have arrived, in order, and what was handed out and given back.
class PoolReceiver {
 public:
  explicit PoolReceiver(RegionShape shape = {}) : shape_(shape) {}

  struct Arrival {
    ChunkHeader header;
    std::uint64_t unit = 0;
    std::uint64_t end = 0;
    bool released = false;
  };

  // A part came with its header at `unit`; both from the peer. Null: it was due. Else why it cannot
  // be.
  [[nodiscard]] const char* arrive(std::uint64_t unit, const ChunkHeader& header) {
    if (header.length > shape_.part_bytes()) return "longer than a region";
    const std::uint64_t units = RegionShape::units_of(header.length);
    const std::uint64_t at = shape_.position(used_, units);
    if (unit != at % shape_.units()) return "not where it was due";
    if (at + units - free_before_ > shape_.units()) return "where another is still in use";
    if (const char* why = order_.arrive(header, shape_.part_bytes())) return why;
    used_ = at + units;
    arrivals_.push_back({header, unit, used_, false});
    return nullptr;
  }

  bool waiting() const { return next_ != first_ + arrivals_.size(); }
  // The oldest arrival not handed out; its ticket is for release. Requires waiting().
  const Arrival& hand_out(std::uint64_t& ticket) {
    ticket = next_;
    return arrivals_[next_++ - first_];
  }
  // In any order; once each.
  void release(std::uint64_t ticket) {
    arrivals_[ticket - first_].released = true;
    while (first_ != next_ && arrivals_.front().released) {
      free_before_ = arrivals_.front().end;
      arrivals_.pop_front();
      ++first_;
    }
  }
  // Everything before this position is free.
  std::uint64_t free_before() const { return free_before_; }
  // What may be free without the sender's knowing it: however parts lie, the next one fits as soon
  // as all are released.
  std::uint64_t untold_units() const {
    return (shape_.count - kLeastRegions) * shape_.region_units / 4;
  }
  bool within_transfer() const { return order_.within_transfer(); }

 private:
  RegionShape shape_;
  TransferOrder order_;
  std::uint64_t used_ = 0;
  std::uint64_t free_before_ = 0;
  // By ticket, from first_: [first_, next_) handed out and not all given back, the rest waiting.
  std::deque<Arrival> arrivals_;
  std::uint64_t first_ = 0;
  std::uint64_t next_ = 0;
};

}  // namespace leat::detail
