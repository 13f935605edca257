// Secrets and nonces from the kernel.
#pragma once

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/system_error.h"

namespace leat::detail {

using Secret = std::array<std::uint8_t, 16>;

inline void fill_random(std::span<std::uint8_t> bytes) {
  // At most 256 bytes, so that getrandom never gives fewer.
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw system_error("getrandom", errno);
}

inline Secret random_secret() {
  Secret secret;
  fill_random(secret);
  return secret;
}

// Takes the same time wherever the secrets differ.
inline bool same_secret(const Secret& a, const Secret& b) noexcept {
  std::uint8_t difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference = static_cast<std::uint8_t>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

inline std::string hex(std::span<const std::uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}
inline std::string hex(std::span<const std::byte> bytes) {
  return hex(std::span(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()));
}

}  // namespace leat::detail
