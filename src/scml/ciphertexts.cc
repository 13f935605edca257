#include "scml/ciphertexts.h"

#include <limits>

namespace leat::scml::detail {
namespace {

std::uint64_t blocks(std::uint64_t size, std::uint64_t block) { return (size - 1) / block + 1; }

}  // namespace

CiphertextCounts count_ciphertexts(const MatrixProduct& product) {
  CiphertextCounts best;
  std::uint64_t fewest = std::numeric_limits<std::uint64_t>::max();
  for (std::uint64_t rows = 1; rows <= kPolynomialDegree; rows *= 2) {
    for (std::uint64_t inner = 1; rows * inner <= kPolynomialDegree; inner *= 2) {
      const std::uint64_t columns = kPolynomialDegree / (rows * inner);
      const std::uint64_t bands = blocks(product.rows, rows);
      const CiphertextCounts counts{bands * blocks(product.inner, inner),
                                    bands * blocks(product.columns, columns)};
      if (counts.operand + counts.product < fewest) {
        fewest = counts.operand + counts.product;
        best = counts;
      }
    }
  }
  return best;
}

}  // namespace leat::scml::detail
