#include "words.h"

#include <cstddef>

#include "vectorised.h"

namespace training {

TRAINING_VECTORISED void add(std::span<Word> sum, std::span<const Word> more) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
}

TRAINING_VECTORISED void subtract(std::span<Word> difference, std::span<const Word> less) {
  for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= less[i];
}

TRAINING_VECTORISED void differences(std::span<Word> result, std::span<const Word> left,
                                     std::span<const Word> right) {
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = left[i] - right[i];
}

TRAINING_VECTORISED void sums_of_differences(std::span<Word> result, std::span<const Word> left,
                                             std::span<const Word> right,
                                             std::span<const Word> more) {
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = left[i] - right[i] + more[i];
}

TRAINING_VECTORISED void xors(std::span<Word> result, std::span<const Word> left,
                              std::span<const Word> right) {
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = left[i] ^ right[i];
}

TRAINING_VECTORISED void xors(std::span<Word> result, std::span<const Word> left,
                              std::span<const Word> right, std::span<const Word> more) {
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = left[i] ^ right[i] ^ more[i];
}

TRAINING_VECTORISED void finish_truncation(std::span<Word> numbers, const TruncationWords& words,
                                           unsigned bits, bool is_first) {
  const Word ours = is_first ? ~Word{0} : 0;
  const Word offset = kTruncationLimit >> bits;
  const auto [mask, high, top, theirs] = words;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const Word c = numbers[i] - mask[i] + theirs[i];
    const Word c_top = c >> 31;
    const Word c_high = (c & ~kTopBit) >> bits;
    const Word carry = (c_top & ours) + ((top[i] ^ -c_top) + c_top);  // c + r - 2 c r
    numbers[i] = ((c_high - offset) & ours) - high[i] + (carry << (31 - bits));
  }
}

// With y = masked, m = mask, and t = y + m: t s = y s + m s, and what remains of t is t s where e
// is 1, else t - t s.
TRAINING_VECTORISED void finish_select(std::span<Word> numbers, std::span<const Word> masked,
                                       std::span<const Word> opened, std::span<const Word> bit,
                                       std::span<const Word> times_mask) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const Word times_bit = masked[i] * bit[i] + times_mask[i];
    numbers[i] = opened[i] != 0 ? times_bit : numbers[i] - times_bit;
  }
}

}  // namespace training
