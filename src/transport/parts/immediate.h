// The 32 bits of immediate data: 4 bits of protocol context, 28 bits of place (CORA §4, "Send").
// Places count units of 64 bytes from the start of the receiver's region; they stay below 2^27, so
// a region may be 8 GiB. With bit 27 set, the other 31 bits are the number of a planned message:
// transport/planned/numbers.h says whose.
#pragma once

#include <cstdint>

#include "transport/context.h"

namespace leat::detail {

inline constexpr std::size_t kPlaceUnitBytes = 64;
inline constexpr std::uint32_t kPlaceBits = 28;
inline constexpr std::uint32_t kNumberBit = 1U << (kPlaceBits - 1);
inline constexpr unsigned kNumberBits = 31;
// The two highest values without that bit are not places but words of their own.
inline constexpr std::uint32_t kEndPlace = kNumberBit - 1;       // nothing more comes
inline constexpr std::uint32_t kAnnouncePlace = kNumberBit - 2;  // a large message follows
inline constexpr std::uint32_t kMaxPlace = kNumberBit - 3;

struct Immediate {
  Context context = 0;      // 0..15
  std::uint32_t place = 0;  // 0..kMaxPlace, or one of the words above; or part of a number

  // Of a planned message, below 2^kNumberBits.
  static constexpr Immediate of_number(std::uint32_t number) {
    return {number >> (kPlaceBits - 1), kNumberBit | (number & (kNumberBit - 1))};
  }
  constexpr bool has_number() const { return (place & kNumberBit) != 0; }
  constexpr std::uint32_t number() const {  // if has_number()
    return context << (kPlaceBits - 1) | (place & (kNumberBit - 1));
  }

  friend bool operator==(const Immediate&, const Immediate&) = default;
};

// Bits above the 4 and 28 are dropped; callers keep to the ranges.
constexpr std::uint32_t encode(Immediate immediate) {
  return immediate.context << kPlaceBits | (immediate.place & ((1U << kPlaceBits) - 1));
}

// Every 32-bit value decodes; whether its place makes sense is for the caller to check.
constexpr Immediate decode_immediate(std::uint32_t bits) {
  return {bits >> kPlaceBits, bits & ((1U << kPlaceBits) - 1)};
}

}  // namespace leat::detail
