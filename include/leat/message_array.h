// Where the messages of one protocol and one layer lie: known before the first byte moves.
#pragma once

#include <cstdint>

#include "leat/cxx20.h"

namespace leat {

// An array of `count` messages of `message_bytes` each. On both sides message i lies at base_bytes
// + message_bytes * i of the planned region (CORA, section 3.3, equation 1). Plain value.
struct MessageArray {
  static constexpr std::uint64_t kAll = UINT64_MAX;
  static constexpr std::uint64_t kMaxCount = (std::uint64_t{1} << 27) - 2;  // an index has 27 bits

  std::uint64_t base_bytes = 0;     // a multiple of 64
  std::uint32_t message_bytes = 0;  // at least 1
  std::uint64_t count = 0;          // 1 to kMaxCount
  std::uint64_t incoming = kAll;    // how many this side receives; kAll: `count`
};

}  // namespace leat
