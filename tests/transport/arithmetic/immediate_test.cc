#include "transport/parts/immediate.h"

#include <gtest/gtest.h>

#include <vector>

namespace leat::detail {
namespace {

// Every context, and every place within some distance of each power of two and of both ends.
std::vector<std::uint32_t> interesting_places() {
  std::vector<std::uint32_t> places;
  for (std::uint32_t bit = 0; bit <= kPlaceBits; ++bit) {
    for (std::int64_t near = -3; near <= 3; ++near) {
      const std::int64_t place = (std::int64_t{1} << bit) + near;
      if (place >= 0 && place < (std::int64_t{1} << kPlaceBits))
        places.push_back(static_cast<std::uint32_t>(place));
    }
  }
  return places;
}

TEST(Immediate, RoundTripsEveryContextAtEveryEdge) {
  for (Context context = 0; context < kContextCount; ++context) {
    for (const std::uint32_t place : interesting_places()) {
      const Immediate immediate{context, place};
      ASSERT_EQ(decode_immediate(encode(immediate)), immediate);
    }
  }
}

TEST(Immediate, EncodesEveryPairDifferently) {
  // 16 contexts times 2^28 places fill 32 bits exactly: decoding and encoding again is the
  // identity.
  for (std::uint64_t bits = 0; bits <= UINT32_MAX; bits += 0xffff) {
    const auto value = static_cast<std::uint32_t>(bits);
    ASSERT_EQ(encode(decode_immediate(value)), value);
  }
}

TEST(Immediate, HasContextInItsFourHighestBits) {
  static_assert(encode({0, 0}) == 0);
  static_assert(encode({1, 0}) == 0x1000'0000);
  static_assert(encode({15, 0}) == 0xf000'0000);
  static_assert(encode({0, 1}) == 1);
  static_assert(encode({15, kEndPlace}) == 0xf7ff'ffff);
  static_assert(decode_immediate(0xf7ff'fffe) == Immediate{15, kAnnouncePlace});
}

TEST(Immediate, KeepsWordsApartFromPlaces) {
  static_assert(kMaxPlace < kAnnouncePlace && kAnnouncePlace < kEndPlace);
  static_assert((std::uint64_t{kMaxPlace} + 3) * kPlaceUnitBytes == std::uint64_t{8} << 30);
}

TEST(Immediate, KeepsNumbersApartFromPlacesAndWords) {
  static_assert(!Immediate{7, kMaxPlace}.has_number());
  static_assert(!Immediate{0, kAnnouncePlace}.has_number());
  static_assert(!Immediate{15, kEndPlace}.has_number());
  static_assert(encode(Immediate::of_number(0)) == 0x0800'0000);
  static_assert(encode(Immediate::of_number(0x7fff'ffff)) == 0xffff'ffff);
}

TEST(Immediate, RoundTripsNumbersAtEveryEdge) {
  for (unsigned bit = 0; bit <= kNumberBits; ++bit) {
    for (std::int64_t near = -3; near <= 3; ++near) {
      const std::int64_t value = (std::int64_t{1} << bit) + near;
      if (value < 0 || value >= std::int64_t{1} << kNumberBits) continue;
      const auto number = static_cast<std::uint32_t>(value);
      const Immediate decoded = decode_immediate(encode(Immediate::of_number(number)));
      ASSERT_TRUE(decoded.has_number());
      ASSERT_EQ(decoded.number(), number);
    }
  }
}

}  // namespace
}  // namespace leat::detail
