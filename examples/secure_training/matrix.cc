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

[[gnu::always_inline]] inline void add_rows_plainly(const Operands& m, std::size_t first_row) {
  for (std::size_t row = first_row; row < m.rows; ++row) {
    for (std::size_t k = 0; k < m.inner; ++k) {
      const Word factor = m.left[row * m.left_row + k * m.left_column];
      for (std::size_t column = 0; column < m.columns; ++column)
        m.sum[row * m.columns + column] += factor * m.right[k * m.columns + column];
    }
  }
}

// The columns of a tile, over all rows, before the next ones: that part of `right` stays in the
// cache. Columns must be whole tiles.
template <std::size_t kBytes, std::size_t kRows, std::size_t kVectors>
[[gnu::always_inline]] inline void add_in_tiles(const Operands& m) {
  using T = Tile<kBytes, kRows, kVectors>;
  const std::size_t tiled_rows = m.rows / kRows * kRows;
  for (std::size_t column = 0; column < m.columns; column += T::kColumns)
    for (std::size_t row = 0; row < tiled_rows; row += kRows)
      T::add(m.sum + row * m.columns + column, m, m.left + row * m.left_row, m.right + column);
  add_rows_plainly(m, tiled_rows);
}

void add_by_any(const Operands& m) { add_in_tiles<16, 4, 2>(m); }

#if defined(__x86_64__)
[[gnu::target("avx2")]] void add_by_avx2(const Operands& m) { add_in_tiles<32, 4, 2>(m); }
[[gnu::target("avx512f")]] void add_by_avx512(const Operands& m) { add_in_tiles<64, 8, 2>(m); }
#endif

constexpr std::size_t kColumns = 32;  // a multiple of every tile's

using Adder = void (*)(const Operands&);

Adder best_adder() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return add_by_avx512;
  if (__builtin_cpu_supports("avx2")) return add_by_avx2;
#endif
  return add_by_any;
}

// Of as many columns as the narrower one has.
void copy_columns(const Matrix& from, Matrix& to) {
  const std::size_t columns = std::min(from.columns, to.columns);
  for (std::size_t row = 0; row < from.rows; ++row)
    std::copy_n(from.words.data() + row * from.columns, columns,
                to.words.data() + row * to.columns);
}

// With columns of zeros up to whole tiles.
Matrix widened(const Matrix& matrix) {
  const std::size_t columns = (matrix.columns + kColumns - 1) / kColumns * kColumns;
  Matrix wide{matrix.rows, columns, Words(matrix.rows * columns, 0)};
  copy_columns(matrix, wide);
  return wide;
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

Matrix rows_of(const Matrix& matrix, std::span<const std::size_t> numbers) {
  Matrix rows{numbers.size(), matrix.columns, {}};
  if (!matrix.has_words()) return rows;
  rows.words.reserve(rows.size());
  for (const std::size_t number : numbers) {
    const auto first = matrix.words.begin() + static_cast<std::ptrdiff_t>(number * matrix.columns);
    rows.words.insert(rows.words.end(), first, first + static_cast<std::ptrdiff_t>(matrix.columns));
  }
  return rows;
}

void add_product(Matrix& sum, const Matrix& left, const Matrix& right, Left turn) {
  static const Adder adder = best_adder();
  const bool turned = turn == Left::kTransposed;
  const std::size_t rows = turned ? left.columns : left.rows;
  const std::size_t inner = turned ? left.rows : left.columns;
  require(inner == right.rows && sum.rows == rows && sum.columns == right.columns);
  require(left.words.size() == left.size() && right.words.size() == right.size() &&
          sum.words.size() == sum.size());
  const std::size_t left_row = turned ? 1 : left.columns, left_column = turned ? left.columns : 1;
  if (right.columns % kColumns == 0) {
    adder({sum.words.data(), left.words.data(), right.words.data(), rows, inner, right.columns,
           left_row, left_column});
    return;
  }
  Matrix wide_sum = widened(sum);
  const Matrix wide_right = widened(right);
  adder({wide_sum.words.data(), left.words.data(), wide_right.words.data(), rows, inner,
         wide_right.columns, left_row, left_column});
  copy_columns(wide_sum, sum);
}

Matrix product(const Matrix& left, const Matrix& right, Left turn) {
  const std::size_t rows = turn == Left::kTransposed ? left.columns : left.rows;
  Matrix result{rows, right.columns, Words(rows * right.columns, 0)};
  add_product(result, left, right, turn);
  return result;
}

}  // namespace training
