#include "plain_engine.h"

namespace training {

std::vector<Factor> PlainEngine::prepare(std::initializer_list<const Matrix*> matrices) {
  std::vector<Factor> factors;
  for (const Matrix* matrix : matrices) factors.push_back({*matrix, {}});
  return factors;
}

Matrix PlainEngine::multiply(const Factor& left, const Factor& right, Left turn) {
  return product(left.first, right.first, turn);
}

void PlainEngine::truncate(std::initializer_list<Truncation> truncations) {
  for (const auto& [matrix, bits] : truncations) {
    const Words dither = rounding_.draw(matrix.words.size());
    for (std::size_t i = 0; i < dither.size(); ++i) {
      Word& word = matrix.words[i];
      if (word + kTruncationLimit >= 2 * kTruncationLimit) ++overflows_;
      const Word cut_off = (Word{1} << bits) - 1;
      const auto number = static_cast<std::int64_t>(static_cast<std::int32_t>(word));
      word = static_cast<Word>((number + (dither[i] & cut_off)) >> bits);
    }
  }
}

Sign PlainEngine::relu(Matrix& matrix) {
  Sign sign;
  sign.opened.reserve(matrix.words.size());
  for (const Word word : matrix.words) sign.opened.push_back(word >> 31);
  select(matrix, sign);
  return sign;
}

void PlainEngine::select(Matrix& matrix, const Sign& sign) {
  for (std::size_t i = 0; i < matrix.words.size(); ++i)
    if (sign.opened[i] != 0) matrix.words[i] = 0;
}

}  // namespace training
