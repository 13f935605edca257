// First-fit placement in a region of memory, and of open contexts in slots. Pure arithmetic: equal
// requests at all parties have equal results.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace leat::scml::detail {

// Blocks begin at multiples of kAlignmentBytes and are multiples of it in size.
class Region {
 public:
  Region(std::uint64_t begin_bytes, std::uint64_t end_bytes);

  // The lowest place with room for `bytes` (> 0), which ends at or before `limit_bytes`; no value
  // if no gap has room.
  std::optional<std::uint64_t> place(std::uint64_t bytes, std::uint64_t limit_bytes = UINT64_MAX);
  void free(std::uint64_t base_bytes);

  // How many bytes the region lacks for `bytes`, if no gap has room for them.
  std::uint64_t missing(std::uint64_t bytes) const;
  std::uint64_t peak_end_bytes() const { return peak_end_bytes_; }

  static std::uint64_t rounded(std::uint64_t bytes);

 private:
  std::uint64_t begin_bytes_;
  std::uint64_t end_bytes_;
  std::uint64_t peak_end_bytes_;
  std::map<std::uint64_t, std::uint64_t> blocks_;  // base to end
};

}  // namespace leat::scml::detail
