// What both sides of a sealed connection tell each other, and what they make of it. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/sealed/record.h"

namespace leat::detail {

// What one side wishes and can do.
struct SealOffer {
  static constexpr std::size_t kBytes = 32;

  SealCipher wish = SealCipher::kAuto;
  bool has_aes = false;  // instructions of its processor
  KeyLimits limits;

  friend bool operator==(const SealOffer&, const SealOffer&) = default;
};

std::array<std::byte, SealOffer::kBytes> encode(const SealOffer& offer);
// These bytes may be any. Throws kProtocol.
SealOffer decode_seal_offer(std::span<const std::byte> bytes);

struct SealChoice {
  SealCipher cipher = SealCipher::kAes256Gcm;
  KeyLimits limits;
};

// The same on both sides. Throws kUnavailable if both name a cipher, and not the same one.
SealChoice agree(const SealOffer& ours, const SealOffer& theirs);

}  // namespace leat::detail
