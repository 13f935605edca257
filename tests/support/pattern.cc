#include "support/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace leat::detail {
namespace {

// A byte of a pattern: the seed and the position pushed through a multiplication.
std::uint64_t pattern_word(std::uint64_t seed, std::size_t index) {
  std::uint64_t word = (seed + 1) * 0x9e3779b97f4a7c15u + index * 0xbf58476d1ce4e5b9u;
  word ^= word >> 29;
  return word * 0x94d049bb133111ebu;
}

}  // namespace

void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed) {
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t word = pattern_word(seed, i);
    std::memcpy(bytes.data() + i, &word, std::min(sizeof(word), bytes.size() - i));
  }
}

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> filled(bytes);
  fill_pattern(filled, seed);
  return filled;
}

std::size_t pattern_mismatch(std::span<const std::byte> bytes, std::uint64_t seed) {
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t word = pattern_word(seed, i);
    const std::size_t part = std::min(sizeof(word), bytes.size() - i);
    if (std::memcmp(bytes.data() + i, &word, part) != 0) return i;
  }
  return bytes.size();
}

void expect_pattern(std::span<const std::byte> bytes, std::uint64_t seed) {
  EXPECT_EQ(pattern_mismatch(bytes, seed), bytes.size()) << "pattern of seed " << seed;
}

void expect_filled(std::span<const std::byte> bytes, std::byte value) {
  const auto other = std::ranges::find_if(bytes, [&](std::byte b) { return b != value; });
  EXPECT_EQ(other - bytes.begin(), std::ssize(bytes)) << "the first byte that is not the filling";
}

}  // namespace leat::detail
