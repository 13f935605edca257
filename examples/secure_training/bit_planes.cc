#include "bit_planes.h"

#include <algorithm>
#include <array>

#include "vectorised.h"

namespace training {
namespace {

constexpr std::size_t kLanes = 16;  // words of a plane that are made together
using Block = std::array<std::array<Word, kLanes>, kWordBits>;

// Swaps rows and columns of 32 x 32 bits, in each lane: blocks of 16, then of 8, ... (Warren,
// Hacker's Delight).
TRAINING_VECTORISED void transpose(Block& rows) {
  Word mask = 0x0000ffff;
  for (unsigned width = 16; width != 0; width >>= 1, mask ^= mask << width) {
    for (unsigned row = 0; row < kWordBits; row = (row + width + 1) & ~width) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const Word swapped = ((rows[row][lane] >> width) ^ rows[row + width][lane]) & mask;
        rows[row][lane] ^= swapped << width;
        rows[row + width][lane] ^= swapped;
      }
    }
  }
}

}  // namespace

void to_planes(std::span<const Word> numbers, std::span<Word> planes) {
  const std::size_t words = plane_words(numbers.size());
  for (std::size_t word = 0; word < words; word += kLanes) {
    const std::size_t lanes = std::min(kLanes, words - word);
    Block block{};
    for (std::size_t bit = 0; bit < kWordBits; ++bit) {
      const std::size_t first = std::min(bit * words + word, numbers.size());
      std::ranges::copy(numbers.subspan(first, std::min(lanes, numbers.size() - first)),
                        block[bit].begin());
    }
    transpose(block);
    for (std::size_t plane = 0; plane < kWordBits; ++plane)
      std::copy_n(block[plane].begin(), lanes, planes.begin() + plane * words + word);
  }
}

TRAINING_VECTORISED Words unpacked(std::span<const Word> plane, std::size_t count) {
  Words numbers(count);
  for (std::size_t bit = 0, i = 0; i < count; ++bit)
    for (std::size_t word = 0; word < plane.size() && i < count; ++word, ++i)
      numbers[i] = plane[word] >> bit & 1;
  return numbers;
}

}  // namespace training
