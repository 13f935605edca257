// The fingerprint by which parties compare plans.
#pragma once

#include <array>
#include <cstdint>

#include "leat/scml/planner.h"

namespace leat::scml::detail {

// SHA-256 of every field except the digest, in the order of declaration: numbers as 64 bits
// little-endian, texts and arrays preceded by their length.
std::array<std::uint8_t, 32> digest_of(const Plan& plan);

}  // namespace leat::scml::detail
