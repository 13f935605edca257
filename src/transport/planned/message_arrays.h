// The message arrays of one side of a planned connection: which are live, where their messages lie,
// which have arrived, and the epochs by which each side tells the other that an array is open.
// Pure.
//
// An epoch counts the opens of one context. Both sides open a context equally often, so equal
// epochs mean the same array.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "leat/message_array.h"
#include "transport/context.h"
#include "transport/parts/immediate.h"

namespace leat::detail {

static_assert(MessageArray::kMaxCount == std::uint64_t{kMaxIndex} + 1);

class MessageArrays {
 public:
  explicit MessageArrays(std::uint64_t region_bytes) : region_bytes_(region_bytes) {}

  // --- calls of the user: what contradicts the live arrays throws kInvalidArgument and does
  // nothing The new epoch. Nothing of the array has arrived.
  std::uint64_t open(unsigned context, const MessageArray& wanted);
  void check_open(unsigned context) const {
    if (context >= kContextCount || !slots_[context].open) [[unlikely]]
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
  void close(unsigned context) { slots_[context].open = false; }
  // Takes the last open() back, so that the next one has its epoch.
  void cancel(unsigned context) {
    slots_[context].open = false;
    --slots_[context].epoch;
  }

  bool is_open(unsigned context) const { return context < kContextCount && slots_[context].open; }
  const MessageArray& array(unsigned context) const { return slots_[context].array; }
  std::uint64_t region_bytes() const { return region_bytes_; }

  // --- arrivals
  // A write of `bytes` bytes came whose first message has that index; any numbers, from a peer.
  // Null: it was due, and its messages have arrived; how many they are is added to `messages`. Else
  // why it cannot be.
  const char* arrive(Context context, std::uint32_t index, std::size_t bytes,
                     std::uint64_t& messages) {
    // The usual case: one message.
    Slot& slot = slots_[context];
    if (!slot.open || bytes != slot.array.message_bytes || index >= slot.array.count ||
        slot.arrived >= slot.array.incoming) [[unlikely]]
      return arrive_many(context, index, bytes, messages);
    std::uint64_t& word = slot.bits[index / 64];
    const std::uint64_t bit = std::uint64_t{1} << (index % 64);
    if ((word & bit) != 0) [[unlikely]]
      return kTwice;
    word |= bit;
    ++slot.arrived;
    ++messages;
    return nullptr;
  }
  bool arrived(Context context, std::uint64_t index) const {
    return (slots_[context].bits[index / 64] >> (index % 64) & 1) != 0;
  }
  // The first of [index, end) that has not arrived, or `end`. Inside the array, and not empty.
  std::uint64_t first_missing(Context context, std::uint64_t index, std::uint64_t end) const {
    if (!arrived(context, index)) return index;
    return index + 1 >= end ? index + 1 : first_missing_of_many(context, index + 1, end);
  }
  std::uint64_t missing(Context context) const {
    return slots_[context].array.incoming - slots_[context].arrived;
  }

  // --- epochs
  std::uint64_t epoch(Context context) const { return slots_[context].epoch; }
  // Whether the peer is known to have this array open.
  bool peer_is_open(Context context) const { return slots_[context].peer_open; }
  // Takes the peer's epoch. False: it has closed this array already, or it lies.
  [[nodiscard]] bool peer_epoch(Context context, std::uint64_t epoch) {
    Slot& slot = slots_[context];
    slot.peer_open = epoch == slot.epoch;
    return epoch <= slot.epoch;
  }

 private:
  static constexpr const char* kTwice = "it came before";

  struct Slot {
    MessageArray array;  // incoming is a number, never kAll
    bool open = false;
    bool peer_open = false;
    std::uint64_t epoch = 0;
    std::uint64_t arrived = 0;
    std::vector<std::uint64_t> bits;
  };

  const char* arrive_many(Context context, std::uint32_t index, std::size_t bytes,
                          std::uint64_t& messages);
  std::uint64_t first_missing_of_many(Context context, std::uint64_t index,
                                      std::uint64_t end) const;
  [[noreturn]] void throw_not_open(unsigned context) const;
  [[noreturn]] void throw_outside(unsigned context, std::uint64_t index, std::uint64_t count) const;
  [[noreturn]] void throw_odd_size(unsigned context, std::uint64_t bytes) const;

  const std::uint64_t region_bytes_;
  std::array<Slot, kContextCount> slots_;
};

}  // namespace leat::detail
