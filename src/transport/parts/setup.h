// A setup, as it lies in memory: a plain value, the same on both sides.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace leat::detail {

static_assert(std::endian::native == std::endian::little);

inline constexpr const char* kSetupOfTheWrongSize = "a setup of the wrong size";
inline constexpr const char* kSetupThatContradictsItself = "a setup that contradicts itself";

// For Transport::setup().
template <typename Setup>
std::vector<std::byte> encode_setup(const Setup& setup) {
  static_assert(std::has_unique_object_representations_v<Setup>, "no byte is left to chance");
  const auto bytes = std::as_bytes(std::span(&setup, 1));
  return {bytes.begin(), bytes.end()};
}

// For Transport::start(), whose bytes may be anything. False: they are not as many as a Setup has.
template <typename Setup>
[[nodiscard]] bool decode_setup(std::span<const std::byte> bytes, Setup& setup) {
  if (bytes.size() != sizeof setup) return false;
  std::memcpy(&setup, bytes.data(), sizeof setup);
  return true;
}

}  // namespace leat::detail
