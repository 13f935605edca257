// Loops over shares, compiled for several kinds of processors, of which the program takes the best
// that it finds. All spans of a call have the same length.
#pragma once

#include <span>

#include "ring.h"

namespace training {

void add(std::span<Word> sum, std::span<const Word> more);
void subtract(std::span<Word> difference, std::span<const Word> less);

// result = left - right, and + more.
void differences(std::span<Word> result, std::span<const Word> left, std::span<const Word> right);
void sums_of_differences(std::span<Word> result, std::span<const Word> left,
                         std::span<const Word> right, std::span<const Word> more);
// result = left ^ right, and ^ more.
void xors(std::span<Word> result, std::span<const Word> left, std::span<const Word> right);
void xors(std::span<Word> result, std::span<const Word> left, std::span<const Word> right,
          std::span<const Word> more);

// What a truncation is computed with; each an own share, but for `theirs`.
struct TruncationWords {
  std::span<const Word> mask, high, top;  // high and top bit of what the mask takes away
  std::span<const Word> theirs;           // the other's masked shares
};
// `numbers` is replaced. See secure_engine.cc.
void finish_truncation(std::span<Word> numbers, const TruncationWords& words, unsigned bits,
                       bool is_first);

// numbers[i] times not (opened[i] xor bit[i]); `times_mask` has the shares of bit times mask.
void finish_select(std::span<Word> numbers, std::span<const Word> masked,
                   std::span<const Word> opened, std::span<const Word> bit,
                   std::span<const Word> times_mask);

}  // namespace training
