// Ciphertexts of a matrix product under ring-LWE encryption.
#pragma once

#include <cstdint>

namespace leat::scml::detail {

// Degree 4096, with the 109-bit modulus that Microsoft SEAL uses for it; plaintexts in Z_2^32. A
// ciphertext consists of two polynomials.
inline constexpr std::uint64_t kPolynomialDegree = 4096;
inline constexpr std::uint64_t kModulusBits = 109;
inline constexpr std::uint64_t kCiphertextBytes = 2 * kPolynomialDegree * kModulusBits / 8;

// (rows x inner) times (inner x columns): M, N and P of the paper.
struct MatrixProduct {
  std::uint64_t rows = 0;
  std::uint64_t inner = 0;
  std::uint64_t columns = 0;
};

struct CiphertextCounts {
  std::uint64_t operand = 0;  // of the left matrix, one way
  std::uint64_t product = 0;  // of the result, the other way
};

// The packing of Iron (Hao et al., NeurIPS 2022): a block of m x n times n x p with m*n*p <= 4096
// takes one ciphertext, and products along the inner dimension are added. Chooses the powers of two
// with the fewest ciphertexts. The caller has checked that `product` does not overflow.
CiphertextCounts count_ciphertexts(const MatrixProduct& product);

}  // namespace leat::scml::detail
