// Where the messages of one protocol on one layer lie: known before the first byte moves.
#pragma once

#include <cstdint>

namespace leat {

// `count` messages of `message_bytes` each. Message i lies at base_bytes + message_bytes * i of the
// planned region, on both sides (CORA §3.3, equation 1). Plain value.
struct MessageArray {
  static constexpr std::uint64_t kAll = UINT64_MAX;
  static constexpr std::uint64_t kMaxCount = (std::uint64_t{1} << 27) - 2;  // 27 bits of index

  std::uint64_t base_bytes = 0;     // a multiple of 64
  std::uint32_t message_bytes = 0;  // at least 1
  std::uint64_t count = 0;          // 1 .. kMaxCount
  std::uint64_t incoming = kAll;    // how many of them this side will receive; kAll: `count`
};

}  // namespace leat
