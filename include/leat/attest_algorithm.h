// The MAC of attested records.
#pragma once

#include <cstdint>

#include "leat/cxx20.h"

namespace leat::trusted {

// The numbers are those in a record's bytes.
enum class Algorithm : std::uint8_t {
  kHmacSha256 = 1,
  kHmacSha384 = 2,
  kHmacSha512 = 3,
  kAes256Gmac = 4,  // no serial hash; docs/security.md says why the counter is a nonce
};

}  // namespace leat::trusted
