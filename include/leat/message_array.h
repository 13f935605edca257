// Where the messages of one protocol and one layer lie: known before the first byte moves.
#pragma once

#include <cstdint>

#include "leat/cxx20.h"

namespace leat {

// How many arrays may be open at the same time, each in a context of its own: 0 to 255. (Ordinary
// messages have the contexts 0 to 15.)
inline constexpr unsigned kArrayContexts = 256;

// An array of `count` messages of `message_bytes` each. On both sides message i lies at base_bytes
// + message_bytes * i of the planned region (CORA, section 3.3, equation 1). Plain value.
struct MessageArray {
  static constexpr std::uint64_t kAll = UINT64_MAX;
  static constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 27;
  // The messages of the open arrays of a connection have numbers on the wire, 2^31 in all; an array
  // takes the lowest range of them that is free, in chunks of this.
  static constexpr std::uint64_t kCountedIn = std::uint64_t{1} << 19;
  static constexpr std::uint64_t kMaxOpenCount = std::uint64_t{1} << 31;

  std::uint64_t base_bytes = 0;     // a multiple of 64
  std::uint32_t message_bytes = 0;  // at least 1
  std::uint64_t count = 0;          // 1 to kMaxCount
  std::uint64_t incoming = kAll;    // how many this side receives; kAll: `count`
};

}  // namespace leat
