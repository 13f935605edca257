// What the server and its clients say besides tensors.
//
//   server                                     each client
//   the task, as text                  -->
//   for each round:
//     kModel, the tensors, kDigest     -->     checks the digest, trains
//                                      <--     kUpdate, the tensors, kDigest
//     [kAgain                          -->     a client was lost on the way: the others go again
//                                      <--     kUpdate, the tensors, kDigest]
//   kFinal, the tensors, kDigest       -->     checks the digest
//                                      <--     kDigest
//   or at any time kGaveUp, and why    -->
//
// Every tensor is one message: its float32 values as they lie in memory (little-endian).
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tensors.h"

namespace federated {

static_assert(std::endian::native == std::endian::little);

// What the server tells every client first.
struct Task {
  unsigned rounds = 3;
  unsigned steps = 1;  // of training, in each round
  float rate = 0.25F;
  std::uint64_t seed = 1;
  Shapes shapes;
};

std::string to_text(const Task& task);
// Throws std::runtime_error; the text may be anything.
Task parse_task(std::string_view text);

enum class Kind : std::uint32_t { kModel = 1, kUpdate, kDigest, kAgain, kFinal, kGaveUp };

inline constexpr std::uint64_t kMaxSamples = (std::uint64_t{1} << 29) - 1;

// SHA-256 over tensors, in hexadecimal.
using Digest = std::array<char, 64>;

struct Word {
  std::uint32_t magic = 0x6c646566;  // "fedl"
  Kind kind = Kind::kModel;
  std::uint32_t round = 0;
  std::uint32_t reserved = 0;
  std::uint64_t samples = 0;  // kUpdate: its weight in the mean, 1 to kMaxSamples
  double loss = 0;            // kUpdate: of the model that came, on the client's data
  Digest digest{};            // kDigest: of what went before; kUpdate: of the model that came
};
static_assert(sizeof(Word) == 96);

inline std::span<const std::byte> bytes_of(const Word& word) {
  return std::as_bytes(std::span(&word, 1));
}
// Throws std::runtime_error if the message is not a word.
Word parse_word(std::span<const std::byte> message);

Digest to_digest(const std::string& hex);
inline std::string to_text(const Digest& digest) { return {digest.begin(), digest.end()}; }

}  // namespace federated
