// A number that a peer writes into our memory by one store. Pure.
#pragma once

#include <cstdint>

namespace leat::detail {

// A number in one word that a flipped bit makes unbelievable; never 0.
constexpr std::uint64_t sealed(std::uint32_t number) {
  return std::uint64_t{number} << 32 | static_cast<std::uint32_t>((number + 1ULL) * 0x9e3779b1);
}
constexpr std::uint32_t number_in(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> 32);
}
constexpr bool is_sealed(std::uint64_t word) { return word == sealed(number_in(word)); }

}  // namespace leat::detail
