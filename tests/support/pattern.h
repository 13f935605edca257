// Contents for messages and memory that show what is missing, moved or doubled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace leat::detail {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

// Bytes that tell position and seed.
void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed);
// So many such bytes.
std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed);
// The first position that differs from fill_pattern's, or bytes.size().
std::size_t pattern_mismatch(std::span<const std::byte> bytes, std::uint64_t seed);
// EXPECTs the whole pattern.
void expect_pattern(std::span<const std::byte> bytes, std::uint64_t seed);
// EXPECTs every byte to be `value`.
void expect_filled(std::span<const std::byte> bytes, std::byte value);

}  // namespace leat::detail
