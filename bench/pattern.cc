#include "pattern.h"

#include <cstring>
#include <stdexcept>
#include <string>

namespace leat::bench {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

// splitmix64: neighbouring inputs give unrelated outputs.
std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// Calls visit(position, bytes, word) for each word of the message, the last one maybe cut.
template <typename Visit>
void for_each_word(std::size_t message_bytes, std::uint64_t seed, std::uint64_t index,
                   Visit&& visit) {
  const std::uint64_t start = mix(seed ^ mix(index));
  for (std::size_t at = 0; at < message_bytes; at += kWordBytes) {
    const std::size_t left = message_bytes - at;
    visit(at, left < kWordBytes ? left : kWordBytes, mix(start + at));
  }
}

}  // namespace

void fill_pattern(std::span<std::byte> message, std::uint64_t seed, std::uint64_t index) {
  for_each_word(message.size(), seed, index,
                [message](std::size_t at, std::size_t bytes, std::uint64_t word) {
                  std::memcpy(message.data() + at, &word, bytes);
                });
}

void check_pattern(std::span<const std::byte> message, std::uint64_t seed, std::uint64_t index) {
  for_each_word(
      message.size(), seed, index, [&](std::size_t at, std::size_t bytes, std::uint64_t word) {
        if (std::memcmp(message.data() + at, &word, bytes) == 0) return;
        throw std::runtime_error("verification failed: message " + std::to_string(index) + " of " +
                                 std::to_string(message.size()) + " bytes is wrong within bytes " +
                                 std::to_string(at) + " to " + std::to_string(at + bytes - 1));
      });
}

}  // namespace leat::bench
