// The types of settings whose values are words.
#pragma once

#include <cstdint>

#include "leat/attest_algorithm.h"

namespace leat::detail {

enum class Fallback { kNever, kWarn, kAllow };
// Settings of transport chunked: how the chunks of a transfer reach their place, and whether a
// short one goes first.
enum class ChunkMode { kInPlace, kHeader };
enum class LinkEnable { kOff, kOn, kAuto };

// Setting of transports sealed+X; the numbers are those in their setup.
enum class SealCipher : std::uint8_t {
  kAuto = 0,
  kAes256Gcm = 1,
  kAes128Gcm = 2,
  kChaCha20Poly1305 = 3,
};

// Whether messages that leave this host must be encrypted, whatever carries them.
enum class Confidential { kOff, kPrefer, kRequire };

// A value of attest_kernel; the others are paths.
inline constexpr const char* kInProcess = "in-process";

}  // namespace leat::detail
