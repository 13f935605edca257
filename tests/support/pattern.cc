#include "support/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace leat::detail {
namespace {

#define LEAT_NOT_SANITIZED [[gnu::no_sanitize("address", "thread", "undefined")]]

// A part of a pattern. A sanitizer then looks at a part of the tested memory at once, and not at
// each word of it.
using Block = std::array<std::uint64_t, 512>;

// A word of a pattern: the seed and the position pushed through a multiplication.
LEAT_NOT_SANITIZED std::uint64_t pattern_word(std::uint64_t seed, std::size_t index) {
  std::uint64_t word = (seed + 1) * 0x9e3779b97f4a7c15u + index * 0xbf58476d1ce4e5b9u;
  word ^= word >> 29;
  return word * 0x94d049bb133111ebu;
}

// Writes what the pattern of `seed` has from position `at` on to `words`.
LEAT_NOT_SANITIZED void fill_words(std::uint64_t* words, std::size_t bytes, std::uint64_t seed,
                                   std::size_t at) {
  for (std::size_t i = 0; i < bytes; i += sizeof(*words)) *words++ = pattern_word(seed, at + i);
}

// Calls look(position, the pattern's bytes there) for one block of `bytes` bytes after the other,
// as long as it returns true.
template <typename Look>
void for_each_block(std::size_t bytes, std::uint64_t seed, const Look& look) {
  Block block;
  for (std::size_t at = 0; at < bytes; at += sizeof(block)) {
    const std::size_t part = std::min(bytes - at, sizeof(block));
    fill_words(block.data(), part, seed, at);
    if (!look(at, std::as_bytes(std::span(block)).first(part))) return;
  }
}

}  // namespace

void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed) {
  for_each_block(bytes.size(), seed, [&](std::size_t at, std::span<const std::byte> part) {
    std::memcpy(bytes.data() + at, part.data(), part.size());
    return true;
  });
}

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> filled(bytes);
  fill_pattern(filled, seed);
  return filled;
}

std::size_t pattern_mismatch(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::size_t first = bytes.size();
  for_each_block(bytes.size(), seed, [&](std::size_t at, std::span<const std::byte> part) {
    if (std::memcmp(bytes.data() + at, part.data(), part.size()) == 0) return true;
    const auto other = std::ranges::mismatch(bytes.subspan(at, part.size()), part).in2;
    first = at + static_cast<std::size_t>(other - part.begin());
    return false;
  });
  return first;
}

void expect_pattern(std::span<const std::byte> bytes, std::uint64_t seed) {
  EXPECT_EQ(pattern_mismatch(bytes, seed), bytes.size()) << "pattern of seed " << seed;
}

void expect_filled(std::span<const std::byte> bytes, std::byte value) {
  const auto other = std::ranges::find_if(bytes, [&](std::byte b) { return b != value; });
  EXPECT_EQ(other - bytes.begin(), std::ssize(bytes)) << "the first byte that is not the filling";
}

}  // namespace leat::detail
