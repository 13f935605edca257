// The header of a message in a slot of transport batched. Pure.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace leat::detail {

enum class SlotKind : std::uint8_t {  // two bits
  kMessage,
  kLargeStart,  // its 8 bytes are the size of a message that follows in pieces
  kEnd,         // its bytes say for each context how many there were; nothing more comes
  kBundle,      // its bytes are several small messages: batched/bundle.h
};

// Bytes of a message, and its kind in the upper two bits.
constexpr unsigned kKindShift = 30;
constexpr std::uint32_t kMostSlotMessageBytes = (1U << kKindShift) - 1;
constexpr std::uint32_t sized(std::size_t bytes, SlotKind kind) {
  return static_cast<std::uint32_t>(bytes) | std::uint32_t{static_cast<std::uint8_t>(kind)}
                                                 << kKindShift;
}

struct SlotHeader {
  std::uint32_t place = 0;     // among those of the context, from 0; modulo 2^32
  std::uint32_t size = 0;      // sized(): what follows
  std::uint32_t sequence = 0;  // of all that this sender sent, from 1; modulo 2^32
  std::uint32_t check = 0;     // of all the above: a damaged header is not believed

  std::uint32_t bytes() const { return size & kMostSlotMessageBytes; }
  SlotKind kind() const { return static_cast<SlotKind>(size >> kKindShift); }
};
static_assert(sizeof(SlotHeader) == 16);
static_assert(std::endian::native == std::endian::little);

// As words: a header is written and read by two stores and two loads.
using SlotHeaderWords = std::array<std::uint64_t, 2>;

// A word of the sender's bitmap as of a unit, and the header of that unit. Of two such words the
// header tells which is the newer one, and its check whether all of one belongs together.
struct Echo {
  std::uint64_t bits = 0;
  SlotHeader header;
};
using EchoWords = std::array<std::uint64_t, 3>;
static_assert(sizeof(Echo) == sizeof(EchoWords));

// Where memory is not shared this stands at the start of a slot.
struct alignas(32) SlotFront {
  Echo echo;  // what the sender's bitmap is to show once this slot is filled
  // Sealed; only a bundle has it, and from before its first message is published.
  std::uint64_t place = 0;
};
static_assert(sizeof(SlotFront) == 32);

// Any change of one bit changes it. The key is the receiver's, random for each connection, so that
// no message's own bytes look like a header where a slot is searched for. It does not protect
// against the sender, which has it.
inline std::uint32_t check_of(const SlotHeader& header, std::uint64_t key) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  const std::uint64_t word = std::bit_cast<SlotHeaderWords>(header)[0];
  return static_cast<std::uint32_t>((word ^ key) * kOdd >> 32) ^ header.sequence;
}

inline std::uint32_t check_of(const Echo& echo, std::uint64_t key) {
  constexpr std::uint64_t kOther = 0xc2b2ae3d27d4eb4f;  // so that bits do not weigh up a place
  return check_of(echo.header, key ^ echo.bits * kOther);
}

}  // namespace leat::detail
