// A number that a peer writes into our memory by one store. Pure.
#pragma once

#include <cstdint>

namespace leat::detail {

// A number with its check in one word, so that a flipped bit is noticed; never 0.
constexpr std::uint64_t sealed(std::uint32_t number) {
  return std::uint64_t{number} << 32 | static_cast<std::uint32_t>((number + 1ULL) * 0x9e3779b1);
}
constexpr std::uint32_t number_in(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> 32);
}
constexpr bool is_sealed(std::uint64_t word) { return word == sealed(number_in(word)); }

// The same for a number below 2^48, with a shorter check.
constexpr unsigned kLongCheckBits = 16;
constexpr std::uint64_t sealed_long(std::uint64_t number) {
  const std::uint64_t check = (number ^ number >> 16 ^ number >> 32 ^ 0x9e37) & 0xffff;
  return number << kLongCheckBits | check;
}
constexpr bool is_sealed_long(std::uint64_t word) {
  return word == sealed_long(word >> kLongCheckBits);
}

}  // namespace leat::detail
