// Arithmetic on sizes from outside, which must not wrap.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>

#include "leat/error.h"

namespace leat::scml::detail {

// Leaves room for sums of a few products in 64 bits.
inline constexpr std::uint64_t kMaxProduct = std::numeric_limits<std::int64_t>::max() / 64;

// `what` names the layer and the counted quantity, for the error.
inline std::uint64_t checked_product(std::initializer_list<std::uint64_t> factors,
                                     const std::string& what) {
  std::uint64_t result = 1;
  for (const std::uint64_t factor : factors) {
    if (__builtin_mul_overflow(result, factor, &result) || result > kMaxProduct)
      throw Error(ErrorCode::kTooLarge, what + " is above " + std::to_string(kMaxProduct),
                  "Make the layer or the batch smaller.");
  }
  return result;
}

inline std::uint64_t divide_up(std::uint64_t value, std::uint64_t by) {
  return value == 0 ? 0 : (value - 1) / by + 1;
}

}  // namespace leat::scml::detail
