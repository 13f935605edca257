#include "matrix.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace training {
namespace {

struct Operands {
  Word* sum;
  const Word* left;
  const Word* right;
  std::size_t rows, inner, columns;
  std::size_t left_row, left_column;  // from an element of `left` to the next one
};

// A tile of kRows x kVectors vectors of the sum stays in registers while a row of `right` after the
// other passes by.
template <std::size_t kBytes, std::size_t kRows, std::size_t kVectors>
struct Tile {
  using Vector [[gnu::vector_size(kBytes)]] = Word;
  static constexpr std::size_t kLanes = kBytes / sizeof(Word);
  static constexpr std::size_t kColumns = kLanes * kVectors;

  // One by one: arrays that are copied as a whole do not stay in registers.
  [[gnu::always_inline]] static void load(Vector& vector, const Word* from) {
    std::memcpy(&vector, from, sizeof vector);
  }

  [[gnu::always_inline]] static void add(Word* sum, const Operands& m, const Word* left,
                                         const Word* right) {
    Vector accumulators[kRows][kVectors];
    for (std::size_t row = 0; row < kRows; ++row)
      for (std::size_t i = 0; i < kVectors; ++i)
        load(accumulators[row][i], sum + row * m.columns + i * kLanes);
    for (std::size_t k = 0; k < m.inner; ++k) {
      Vector line[kVectors];
      for (std::size_t i = 0; i < kVectors; ++i) load(line[i], right + k * m.columns + i * kLanes);
      for (std::size_t row = 0; row < kRows; ++row) {
        const Word factor = left[row * m.left_row + k * m.left_column];
        for (std::size_t i = 0; i < kVectors; ++i) accumulators[row][i] += factor * line[i];
      }
    }
    for (std::size_t row = 0; row < kRows; ++row)
      for (std::size_t i = 0; i < kVectors; ++i)
        std::memcpy(sum + row * m.columns + i * kLanes, &accumulators[row][i], kBytes);
  }
};

[[gnu::always_inline]] inline void add_plainly(const Operands& m, std::size_t first_row,
                                               std::size_t last_row, std::size_t first_column) {
  for (std::size_t row = first_row; row < last_row; ++row) {
    for (std::size_t k = 0; k < m.inner; ++k) {
      const Word factor = m.left[row * m.left_row + k * m.left_column];
      for (std::size_t column = first_column; column < m.columns; ++column)
        m.sum[row * m.columns + column] += factor * m.right[k * m.columns + column];
    }
  }
}

// The columns of a tile, over all rows, before the next ones: that part of `right` stays in the
// cache.
template <std::size_t kBytes, std::size_t kRows, std::size_t kVectors>
[[gnu::always_inline]] inline void add_in_tiles(const Operands& m) {
  using T = Tile<kBytes, kRows, kVectors>;
  const std::size_t tiled_rows = m.rows / kRows * kRows;
  const std::size_t tiled_columns = m.columns / T::kColumns * T::kColumns;
  for (std::size_t column = 0; column < tiled_columns; column += T::kColumns)
    for (std::size_t row = 0; row < tiled_rows; row += kRows)
      T::add(m.sum + row * m.columns + column, m, m.left + row * m.left_row, m.right + column);
  add_plainly(m, 0, tiled_rows, tiled_columns);
  add_plainly(m, tiled_rows, m.rows, 0);
}

void add_by_any(const Operands& m) { add_in_tiles<16, 4, 2>(m); }

#if defined(__x86_64__)
[[gnu::target("avx2")]] void add_by_avx2(const Operands& m) { add_in_tiles<32, 4, 2>(m); }
[[gnu::target("avx512f")]] void add_by_avx512(const Operands& m) { add_in_tiles<64, 8, 2>(m); }
#endif

using Adder = void (*)(const Operands&);

Adder best_adder() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return add_by_avx512;
  if (__builtin_cpu_supports("avx2")) return add_by_avx2;
#endif
  return add_by_any;
}

void require(bool fits) {
  if (!fits) throw std::logic_error("matrices whose shapes do not fit");
}

}  // namespace

Matrix transposed(const Matrix& matrix) {
  Matrix result{matrix.columns, matrix.rows, Words(matrix.words.size())};
  if (!matrix.has_words()) return result;
  constexpr std::size_t kBlock = 16;  // a cache line of each row
  for (std::size_t row = 0; row < matrix.rows; row += kBlock) {
    const std::size_t row_end = std::min(row + kBlock, matrix.rows);
    for (std::size_t column = 0; column < matrix.columns; column += kBlock) {
      const std::size_t column_end = std::min(column + kBlock, matrix.columns);
      for (std::size_t c = column; c < column_end; ++c)
        for (std::size_t r = row; r < row_end; ++r)
          result.words[c * matrix.rows + r] = matrix.words[r * matrix.columns + c];
    }
  }
  return result;
}

void add_product(Matrix& sum, const Matrix& left, const Matrix& right, Left turn) {
  static const Adder adder = best_adder();
  const bool turned = turn == Left::kTransposed;
  const std::size_t rows = turned ? left.columns : left.rows;
  const std::size_t inner = turned ? left.rows : left.columns;
  require(inner == right.rows && sum.rows == rows && sum.columns == right.columns);
  require(left.words.size() == left.size() && right.words.size() == right.size() &&
          sum.words.size() == sum.size());
  adder({sum.words.data(), left.words.data(), right.words.data(), rows, inner, right.columns,
         turned ? 1 : left.columns, turned ? left.columns : 1});
}

Matrix product(const Matrix& left, const Matrix& right, Left turn) {
  const std::size_t rows = turn == Left::kTransposed ? left.columns : left.rows;
  Matrix result{rows, right.columns, Words(rows * right.columns)};
  add_product(result, left, right, turn);
  return result;
}

void add(Matrix& sum, const Matrix& more) {
  require(sum.words.size() == more.words.size());
  for (std::size_t i = 0; i < sum.words.size(); ++i) sum.words[i] += more.words[i];
}

void subtract(Matrix& difference, const Matrix& less) {
  require(difference.words.size() == less.words.size());
  for (std::size_t i = 0; i < difference.words.size(); ++i) difference.words[i] -= less.words[i];
}

}  // namespace training
