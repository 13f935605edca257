// Sizes of circuits, and of what oblivious transfer and garbling send for them.
#pragma once

#include <cstdint>

namespace leat::scml::detail {

inline constexpr std::uint64_t kWordBits = 32;

// A Kogge-Stone adder of 32 bits on whole words (Kogge and Stone 1973): the ANDs of each round.
// First generate = a & b; then five levels of generate |= propagate & (generate << s) and propagate
// &= propagate << s, where the last level does not need propagate.
inline constexpr std::uint64_t kAdderGates[] = {1, 2, 2, 2, 2, 1};

// The carry into the sign of a sum of two numbers, from pairs of groups of bits (Brent and Kung
// 1982). As Piranha runs it: five levels, two ANDs for each pair.
inline constexpr std::uint64_t kCarryPairs[] = {16, 8, 4, 2, 1};

// As examples/secure_training runs it (comparison.cc): the pairs of single bits come from the
// material, so that four levels are left, of 8, 4, 2 and 1 pairs; they open three bits for each
// pair but two for the lowest. ANDs of the material: 15 pairs of bits, and two for each pair of the
// levels but one for the lowest.
inline constexpr std::uint64_t kOpenedPlanes[] = {23, 11, 5, 2};
inline constexpr std::uint64_t kAndPlanes = 15 + 15 + 7 + 3 + 1;

// Labels of 128 bits, XOR free (Kolesnikov and Schneider 2008), two ciphertexts per AND (half
// gates, Zahur et al. 2015).
inline constexpr std::uint64_t kLabelBytes = 16;
inline constexpr std::uint64_t kGarbledGateBytes = 2 * kLabelBytes;

// AND gates on 32-bit numbers (Kolesnikov, Sadeghi and Schneider 2009): a sum modulo 2^32, a ReLU
// (each bit but the sign with the sign), a comparison and a choice.
inline constexpr std::uint64_t kGarbledAdderGates = 31;
inline constexpr std::uint64_t kGarbledReluGates = 31;
inline constexpr std::uint64_t kGarbledMaxGates = 32 + 32;

}  // namespace leat::scml::detail
