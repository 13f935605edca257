// Ciphertexts of a matrix product under ring-LWE encryption.
#pragma once

#include <cstdint>

#include "scml/arrays.h"

namespace leat::scml::detail {

// Degree 4096 and the modulus that Microsoft SEAL takes for it, 109 bits; plaintexts in Z_2^32. A
// ciphertext is two polynomials.
inline constexpr std::uint64_t kPolynomialDegree = 4096;
inline constexpr std::uint64_t kModulusBits = 109;
inline constexpr std::uint64_t kCiphertextBytes = 2 * kPolynomialDegree * kModulusBits / 8;

struct CiphertextCounts {
  std::uint64_t operand = 0;  // of the left matrix, one way
  std::uint64_t product = 0;  // of the result, the other way
};

// The packing of Iron (Hao et al., NeurIPS 2022): blocks of m x n times n x p with m*n*p <= 4096
// take one ciphertext each, products along the inner dimension add up. Takes the powers of two with
// the fewest ciphertexts. `product` has been checked not to overflow.
CiphertextCounts count_ciphertexts(const MatrixProduct& product);

}  // namespace leat::scml::detail
