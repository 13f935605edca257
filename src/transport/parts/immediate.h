// The 32 bits of immediate data: 4 bits of protocol context, 28 bits of place (CORA §4, "Send").
// Places count units of 64 bytes from the start of the receiver's region, so a region may be 16
// GiB.
#pragma once

#include <cstdint>

#include "transport/context.h"

namespace leat::detail {

inline constexpr std::size_t kPlaceUnitBytes = 64;
inline constexpr std::uint32_t kPlaceBits = 28;
// The two highest values are not places but words of their own.
inline constexpr std::uint32_t kEndPlace = (1U << kPlaceBits) - 1;       // nothing more comes
inline constexpr std::uint32_t kAnnouncePlace = (1U << kPlaceBits) - 2;  // a large message follows
inline constexpr std::uint32_t kMaxPlace = (1U << kPlaceBits) - 3;
// Up to kMaxPlace, the upper half are not places either but indexes of planned messages: rings
// never reach that far. transport/planned/planned.h says what lies there.
inline constexpr std::uint32_t kIndexBit = 1U << (kPlaceBits - 1);
inline constexpr std::uint32_t kMaxIndex = kMaxPlace - kIndexBit;

struct Immediate {
  Context context = 0;      // 0..15
  std::uint32_t place = 0;  // 0..kMaxPlace, or one of the words above

  constexpr bool has_index() const { return place >= kIndexBit && place <= kMaxPlace; }
  constexpr std::uint32_t index() const { return place & (kIndexBit - 1); }  // if has_index()

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
