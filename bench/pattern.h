// Bytes that both sides can compute, so that --verify finds a byte that is wrong, lost or old.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace leat::bench {

// The message number `index` of the side `seed`. Messages differ from each other in every 8 bytes.
void fill_pattern(std::span<std::byte> message, std::uint64_t seed, std::uint64_t index);

// Throws std::runtime_error that names message and position of the first wrong byte.
void check_pattern(std::span<const std::byte> message, std::uint64_t seed, std::uint64_t index);

}  // namespace leat::bench
