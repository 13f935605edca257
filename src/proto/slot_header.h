// What stands at the start of a slot of transport batched. Pure.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace leat::detail {

enum class SlotKind : std::uint32_t {
  kMessage,
  kLargeStart,  // its 8 bytes are the size of a message that follows in pieces
  kEnd,         // its bytes tell for each context how many there were; nothing more comes
};

struct SlotHeader {
  std::uint64_t echo = 0;      // the sender's bitmap word, once it knows that this slot is filled
  std::uint32_t sequence = 0;  // of all that this sender sent, from 1; modulo 2^32
  std::uint32_t place = 0;     // among those of the context, from 0; modulo 2^32
  std::uint32_t bytes = 0;     // that follow
  SlotKind kind = SlotKind::kMessage;
  std::uint64_t check = 0;  // of all the above: a damaged header is not believed
};
static_assert(sizeof(SlotHeader) == 32);
static_assert(std::endian::native == std::endian::little);

// Any change of one bit changes it. The key is the receiver's, random for each connection, so that
// no message's own bytes look like a header where a slot is searched for. It is no protection
// against the sender, who has it.
constexpr std::uint64_t check_of(const SlotHeader& header, std::uint64_t key) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  std::uint64_t mixed = (header.echo ^ key) * kOdd;
  mixed ^= std::rotl(mixed, 29) ^ (std::uint64_t{header.sequence} << 32 | header.place);
  mixed *= kOdd;
  mixed ^= std::rotl(mixed, 31) ^
           (std::uint64_t{header.bytes} << 32 | static_cast<std::uint32_t>(header.kind));
  mixed = (mixed ^ key) * kOdd;
  return mixed ^ mixed >> 32;
}

// A number in one word that a flipped bit makes unbelievable.
constexpr std::uint64_t sealed(std::uint32_t number) {
  return std::uint64_t{number} << 32 | static_cast<std::uint32_t>((number + 1ULL) * 0x9e3779b1);
}
constexpr bool is_sealed(std::uint64_t word) {
  return word == sealed(static_cast<std::uint32_t>(word >> 32));
}

}  // namespace leat::detail
