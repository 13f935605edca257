// Matrices over Z_2^32.
#pragma once

#include <cstddef>
#include <span>

#include "ring.h"
#include "words.h"

namespace training {

// Row after row. `words` may be empty where only the shape is known: at a party that has no share.
struct Matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  Words words;

  std::size_t size() const noexcept { return rows * columns; }
  bool has_words() const noexcept { return !words.empty(); }
};

Matrix transposed(const Matrix& matrix);
Matrix rows_of(const Matrix& matrix, std::span<const std::size_t> numbers);

// Whether the left factor of a product is turned first, which costs nothing.
enum class Left { kAsIs, kTransposed };

// sum += left * right; shapes must fit. The work is done by vector instructions, the widest that
// this processor has.
void add_product(Matrix& sum, const Matrix& left, const Matrix& right, Left turn = Left::kAsIs);
Matrix product(const Matrix& left, const Matrix& right, Left turn = Left::kAsIs);

// Element by element; the shapes are the same.
inline void add(Matrix& sum, const Matrix& more) { add(std::span(sum.words), more.words); }
inline void subtract(Matrix& difference, const Matrix& less) {
  subtract(std::span(difference.words), less.words);
}

}  // namespace training
