// The numbers by which planned messages are told apart on the wire: a write's immediate data have
// 31 bits for them (parts/immediate.h), too few for 256 contexts of 2^27 messages each. So a
// receiver gives each array that it opens a range of them, in chunks, and tells the sender the
// first one with the array's epoch. A message's number is the range's first plus its index. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "leat/message_array.h"
#include "transport/parts/immediate.h"

namespace leat::detail {

class MessageNumbers {
 public:
  static constexpr std::uint64_t kChunk = MessageArray::kCountedIn;  // numbers in a chunk
  static constexpr std::uint32_t kChunks = (std::uint64_t{1} << kNumberBits) / kChunk;
  static_assert(kChunks * kChunk == std::uint64_t{1} << kNumberBits);
  static_assert(MessageArray::kMaxCount / kChunk <= kChunks && kChunks >= kArrayContexts);
  static constexpr unsigned kNobody = kArrayContexts;

  MessageNumbers() { owners_.fill(kNobody); }

  static std::uint32_t chunks_of(std::uint64_t count) {
    return static_cast<std::uint32_t>((count + kChunk - 1) / kChunk);
  }
  // Gives the lowest free range to an array of `count` messages. Returns its first chunk, or
  // kChunks if no range is long enough.
  std::uint32_t take(unsigned context, std::uint64_t count) {
    const std::uint32_t wanted = chunks_of(count);
    std::uint32_t free = 0;
    for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
      free = owners_[chunk] == kNobody ? free + 1 : 0;
      if (free < wanted) continue;
      const std::uint32_t first = chunk + 1 - wanted;
      own(first, wanted, context);
      return first;
    }
    return kChunks;
  }
  void give_back(std::uint32_t first, std::uint64_t count) {
    own(first, chunks_of(count), kNobody);
  }
  // In which context the number, below 2^kNumberBits, is a message's; kNobody: in none.
  unsigned owner(std::uint32_t number) const { return owners_[number / kChunk]; }

 private:
  void own(std::uint32_t first, std::uint32_t chunks, unsigned context) {
    std::fill_n(owners_.begin() + first, chunks, static_cast<std::uint16_t>(context));
  }

  std::array<std::uint16_t, kChunks> owners_;
};

}  // namespace leat::detail
