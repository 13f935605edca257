#include "plain_engine.h"

namespace training {

std::vector<Factor> PlainEngine::prepare(std::initializer_list<const Matrix*> matrices) {
  std::vector<Factor> factors;
  for (const Matrix* matrix : matrices) factors.push_back({*matrix, {}});
  return factors;
}

std::vector<Matrix> PlainEngine::multiply(std::initializer_list<Product> products) {
  std::vector<Matrix> results;
  for (const auto& [left, right, bits, turn] : products) {
    results.push_back(product(left.first, right.first, turn));
    truncate(results.back().words, bits);
  }
  return results;
}

void PlainEngine::truncate(std::span<Word> numbers, unsigned bits) {
  const Words dither = rounding_.draw(numbers.size());
  for (std::size_t i = 0; i < dither.size(); ++i) {
    Word& word = numbers[i];
    if (word + kTruncationLimit >= 2 * kTruncationLimit) ++overflows_;
    const Word cut_off = (Word{1} << bits) - 1;
    const auto number = static_cast<std::int64_t>(static_cast<std::int32_t>(word));
    word = static_cast<Word>((number + (dither[i] & cut_off)) >> bits);
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
