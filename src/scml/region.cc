#include "scml/region.h"

#include <algorithm>

#include "leat/scml/planner.h"

namespace leat::scml::detail {

std::uint64_t Region::rounded(std::uint64_t bytes) {
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

Region::Region(std::uint64_t begin_bytes, std::uint64_t end_bytes)
    : begin_bytes_(begin_bytes), end_bytes_(end_bytes), peak_end_bytes_(begin_bytes) {}

std::optional<std::uint64_t> Region::place(std::uint64_t bytes, std::uint64_t limit_bytes) {
  const std::uint64_t last = std::min(end_bytes_, limit_bytes);
  const std::uint64_t needed = rounded(bytes);
  std::uint64_t gap = begin_bytes_;
  for (const auto& [base, end] : blocks_) {
    if (base - gap >= needed) break;
    gap = end;
  }
  if (gap > last || last - gap < needed) return std::nullopt;
  blocks_.emplace(gap, gap + needed);
  peak_end_bytes_ = std::max(peak_end_bytes_, gap + needed);
  return gap;
}

void Region::free(std::uint64_t base_bytes) { blocks_.erase(base_bytes); }

std::uint64_t Region::missing(std::uint64_t bytes) const {
  const std::uint64_t last_end = blocks_.empty() ? begin_bytes_ : blocks_.rbegin()->second;
  return last_end + rounded(bytes) - end_bytes_;
}

}  // namespace leat::scml::detail
