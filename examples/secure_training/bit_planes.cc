#include "bit_planes.h"

#include <algorithm>
#include <array>

namespace training {
namespace {

// Swaps rows and columns of 32 x 32 bits: blocks of 16, then of 8, ... (Warren, Hacker's Delight,
// section 7-3).
void transpose(std::array<Word, kWordBits>& rows) {
  Word mask = 0x0000ffff;
  for (unsigned width = 16; width != 0; width >>= 1, mask ^= mask << width) {
    for (unsigned row = 0; row < kWordBits; row = (row + width + 1) & ~width) {
      const Word swapped = ((rows[row] >> width) ^ rows[row + width]) & mask;
      rows[row] ^= swapped << width;
      rows[row + width] ^= swapped;
    }
  }
}

}  // namespace

void to_planes(std::span<const Word> numbers, std::span<Word> planes) {
  const std::size_t words = plane_words(numbers.size());
  for (std::size_t word = 0; word < words; ++word) {
    std::array<Word, kWordBits> block{};
    const auto some = numbers.subspan(word * kWordBits)
                          .first(std::min(kWordBits, numbers.size() - word * kWordBits));
    std::ranges::copy(some, block.begin());
    transpose(block);
    for (std::size_t plane = 0; plane < kWordBits; ++plane)
      planes[plane * words + word] = block[plane];
  }
}

Words unpacked(std::span<const Word> plane, std::size_t count) {
  Words numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = plane[i / kWordBits] >> (i % kWordBits) & 1;
  return numbers;
}

}  // namespace training
