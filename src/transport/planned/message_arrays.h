// The message arrays of one side of a planned connection: which are live, where their messages lie,
// which have arrived, and the epochs by which each side tells the other that an array is open.
// Pure.
//
// An epoch counts the opens of one context. Both sides open a context equally often, so equal
// epochs mean the same array. The word that a side tells its peer at an open has the epoch, modulo
// 2^35, and the first chunk of the array's numbers (numbers.h), sealed: one damaged into an older
// epoch would be taken for silence, and both sides would wait for ever.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "leat/message_array.h"
#include "transport/parts/sealed_word.h"
#include "transport/planned/numbers.h"

namespace leat::detail {

class MessageArrays {
 public:
  explicit MessageArrays(std::uint64_t region_bytes) : region_bytes_(region_bytes) {}

  // --- calls of the user: what contradicts the live arrays throws kInvalidArgument and does
  // nothing

  // Nothing of the array has arrived.
  void open(unsigned context, const MessageArray& wanted);
  void check_open(unsigned context) const {
    if (context >= kArrayContexts || !slots_[context].open) [[unlikely]]
      throw_not_open(context);
  }
  // Where in the region messages lie, by equation 1.
  std::uint64_t place(unsigned context, std::uint64_t index, std::uint64_t count) const {
    check_open(context);
    const MessageArray& array = slots_[context].array;
    if (index >= array.count || count > array.count - index || count == 0) [[unlikely]]
      throw_outside(context, index, count);
    return array.base_bytes + array.message_bytes * index;
  }
  // How many messages `bytes` bytes are.
  std::uint64_t count_of(unsigned context, std::uint64_t bytes) const {
    check_open(context);
    const std::uint32_t each = slots_[context].array.message_bytes;
    if (bytes == each) [[likely]]
      return 1;
    if (bytes == 0 || bytes % each != 0) throw_odd_size(context, bytes);
    return bytes / each;
  }
  void close(unsigned context) {
    Slot& slot = slots_[context];
    slot.open = false;
    std::erase(open_, context);
    numbers_.give_back(slot.first_number / MessageNumbers::kChunk, slot.array.count);
  }
  // Takes the last open() back, so that the next one has its epoch.
  void cancel(unsigned context) {
    close(context);
    --slots_[context].epoch;
  }

  bool is_open(unsigned context) const { return context < kArrayContexts && slots_[context].open; }
  const MessageArray& array(unsigned context) const { return slots_[context].array; }
  std::uint64_t region_bytes() const { return region_bytes_; }

  // --- arrivals
  // A write of `bytes` bytes came whose first message has that number; any values, from a peer, the
  // number below 2^kNumberBits. Null: it was due, and its messages have arrived; how many they are
  // is added to `messages`. Else why it cannot be.
  const char* arrive(std::uint32_t number, std::size_t bytes, std::uint64_t& messages) {
    // The usual case: one message. A number outside the array makes an index outside it.
    Slot& slot = slots_[numbers_.owner(number)];
    const std::uint32_t index = number - slot.first_number;
    if (!slot.open || bytes != slot.array.message_bytes || index >= slot.array.count ||
        slot.arrived >= slot.array.incoming) [[unlikely]]
      return arrive_many(slot, index, bytes, messages);
    std::uint64_t& word = slot.bits[index / 64];
    const std::uint64_t bit = std::uint64_t{1} << (index % 64);
    if ((word & bit) != 0) [[unlikely]]
      return kTwice;
    word |= bit;
    ++slot.arrived;
    ++messages;
    return nullptr;
  }
  // For errors: which message has that number.
  std::string message_of(std::uint32_t number) const;
  bool arrived(unsigned context, std::uint64_t index) const {
    return (slots_[context].bits[index / 64] >> (index % 64) & 1) != 0;
  }
  // The first of [index, end) that has not arrived, or `end`. Inside the array, and not empty.
  std::uint64_t first_missing(unsigned context, std::uint64_t index, std::uint64_t end) const {
    if (!arrived(context, index)) return index;
    return index + 1 >= end ? index + 1 : first_missing_of_many(context, index + 1, end);
  }
  std::uint64_t missing(unsigned context) const {
    return slots_[context].array.incoming - slots_[context].arrived;
  }

  // --- epochs
  std::uint64_t epoch(unsigned context) const { return slots_[context].epoch; }
  static constexpr std::uint64_t word_of(std::uint64_t epoch, std::uint64_t first_chunk) {
    return sealed_long((epoch & kEpochs) << kChunkBits | first_chunk);
  }
  // What the peer is to be told of this open array.
  std::uint64_t word(unsigned context) const {
    const Slot& slot = slots_[context];
    return word_of(slot.epoch, slot.first_number / MessageNumbers::kChunk);
  }
  // Whether the peer is known to have this array open.
  bool peer_is_open(unsigned context) const { return slots_[context].peer_open; }
  enum class Heard {
    kNothing,  // the peer has not opened this array yet
    kOpen,
    kTooFar,      // it has closed it already, or lies
    kBadNumbers,  // too few for the array
    kNoRegion,    // it has opened the array, but its region is not `reachable`
    kDamaged,
  };
  // Takes the peer's word, which may be anything; 0: none was written yet. Only after kOpen the
  // peer is known to have the array open.
  [[nodiscard]] Heard hear_peer(unsigned context, std::uint64_t word, bool reachable = true);
  // Of a message to send, in an array that the peer has open.
  std::uint32_t number(unsigned context, std::uint64_t index) const {
    return slots_[context].peer_first_number + static_cast<std::uint32_t>(index);
  }

 private:
  static constexpr const char* kTwice = "it came before";
  static constexpr unsigned kChunkBits = 13;  // of a word; the rest is the epoch
  static constexpr std::uint64_t kEpochs = UINT64_MAX >> (kLongCheckBits + kChunkBits);
  static_assert(MessageNumbers::kChunks <= 1U << kChunkBits);

  struct Slot {
    MessageArray array;  // incoming is a number, never kAll
    bool open = false;
    bool peer_open = false;
    std::uint32_t first_number = 0;       // of what arrives
    std::uint32_t peer_first_number = 0;  // of what is sent
    std::uint64_t epoch = 0;
    std::uint64_t arrived = 0;
    std::vector<std::uint64_t> bits;
  };

  static const char* arrive_many(Slot& slot, std::uint32_t index, std::size_t bytes,
                                 std::uint64_t& messages);
  std::uint64_t first_missing_of_many(unsigned context, std::uint64_t index,
                                      std::uint64_t end) const;
  [[noreturn]] void throw_not_open(unsigned context) const;
  [[noreturn]] void throw_outside(unsigned context, std::uint64_t index, std::uint64_t count) const;
  [[noreturn]] void throw_odd_size(unsigned context, std::uint64_t bytes) const;

  const std::uint64_t region_bytes_;
  std::array<Slot, kArrayContexts + 1> slots_;  // the last one, of numbers of nobody, never opens
  std::vector<unsigned> open_;                  // contexts
  MessageNumbers numbers_;
};

}  // namespace leat::detail
