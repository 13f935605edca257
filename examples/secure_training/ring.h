// Numbers of the ring Z_2^32 and fixed-point numbers in it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace training {

// An element of Z_2^32: a share, a masked value, or a signed number in two's complement.
using Word = std::uint32_t;

// A vector's memory with the values that happen to be there until it is written: nearly all words
// are, at once, and writing zeros first takes as long as many a computation.
template <typename Value>
struct UnsetAllocator : std::allocator<Value> {
  template <typename Other>
  struct rebind {
    using other = UnsetAllocator<Other>;
  };
  using std::allocator<Value>::allocator;
  void construct(Value* place) noexcept { ::new (place) Value; }
  template <typename... Arguments>
  void construct(Value* place, Arguments&&... arguments) {
    ::new (place) Value(std::forward<Arguments>(arguments)...);
  }
};
using Words = std::vector<Word, UnsetAllocator<Word>>;  // Words(n) are not set, Words(n, 0) are

// Bits after the point. A product has twice as many until it is truncated, and must then be below
// 2^30 (pair.h): with 11 bits products and their sums reach 256, which SecureML's network needs (a
// weight gradient is a sum over 128 samples), and steps are 1/2048, which suffices because
// truncation rounds up with the probability of what it cuts off: small gradients are not lost, but
// arrive rarely (Gupta et al., ICML 2015). 13 bits as in SecureML need its
// ring of 64 bits.
inline constexpr unsigned kFractionBits = 11;

// What may be truncated lies in [-kTruncationLimit, kTruncationLimit).
inline constexpr Word kTruncationLimit = Word{1} << 30;

// Negative numbers have it.
inline constexpr Word kTopBit = Word{1} << 31;

inline Word encode(double value) {
  return static_cast<Word>(
      static_cast<std::int32_t>(std::lround(std::ldexp(value, kFractionBits))));
}
inline double decode(Word word) {
  return std::ldexp(static_cast<std::int32_t>(word), -static_cast<int>(kFractionBits));
}

}  // namespace training
