// Bits of many numbers, turned so that one instruction works on one bit of 32 of them, or more.
#pragma once

#include <cstddef>
#include <span>

#include "ring.h"

namespace training {

inline constexpr std::size_t kWordBits = 32;

// Words of one plane: it has one bit of each of `count` numbers. Number i has bit i / words of the
// word i % words, so that neighbours in a plane are neighbours among the numbers.
inline std::size_t plane_words(std::size_t count) { return (count + kWordBits - 1) / kWordBits; }

// Plane i, at i * plane_words(numbers.size()), has bit i of the numbers; missing numbers are 0.
// `planes` has room for 32 planes.
void to_planes(std::span<const Word> numbers, std::span<Word> planes);

// One number, 0 or 1, of each bit of a plane.
Words unpacked(std::span<const Word> plane, std::size_t count);

}  // namespace training
