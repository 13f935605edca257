// Slots: the fixed memory of the transports confirm-each and batched. Each protocol context has a
// set of its own, so that a slow reader of one context never takes the room of another. A message
// takes a run of neighbouring slots as if they were one, within 64 slots that share a bitmap word.
// Pure.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "transport/context.h"

namespace leat::detail {

inline constexpr unsigned kWordSlots = 64;
inline constexpr unsigned kMinSlots = 16;
inline constexpr unsigned kMaxSlots = 1024;  // of context 0
inline constexpr unsigned kMaxAllSlots = kMaxSlots + (kContextCount - 1) * kWordSlots;
inline constexpr unsigned kMaxSlotWords = kMaxSlots / kWordSlots + kContextCount - 1;
inline constexpr std::size_t kMinSlotBytes = 64;
inline constexpr std::size_t kMaxSlotBytes = std::size_t{1} << 24;
// A message above this share of its set's slots travels in pieces.
inline constexpr unsigned kRunShare = 4;

// Slots are used in turn and messages are often of one size, so each side fetches the cache lines
// of a message that comes soon: how many messages ahead, and how many lines of it. Longer ones the
// processor itself fetches well.
struct FetchAhead {
  static constexpr std::size_t kLineBytes = 64;
  static constexpr unsigned kMostMessages = 8;
  static constexpr unsigned kMostLines = 16;

  explicit constexpr FetchAhead(std::size_t bytes) {
    const std::size_t needed = bytes <= kLineBytes ? 1 : (bytes - 1) / kLineBytes + 1;
    if (needed > kMostLines) return;
    lines = static_cast<unsigned>(needed);
    messages = std::min(kMostLines >> std::bit_width(lines - 1), kMostMessages);
  }
  unsigned messages = 1;
  unsigned lines = 0;
};

// Neighbouring slots of one set.
struct SlotRun {
  unsigned first = 0;
  unsigned count = 0;

  unsigned word() const { return first / kWordSlots; }
  std::uint64_t bits() const {
    const std::uint64_t low = count == kWordSlots ? ~std::uint64_t{0} : (1ULL << count) - 1;
    return low << first % kWordSlots;
  }
};

// Where the slots of all contexts lie, one set after the other. Context 0 has slots as the settings
// say; the other contexts have a word's slots each, of a quarter of the size.
class SlotLayout {
 public:
  SlotLayout() = default;
  // `slot_bytes`: of message in a slot of context 0, behind `header_bytes`; `slots`: of context 0.
  // Sizes within the limits above.
  SlotLayout(std::size_t slot_bytes, unsigned slots, std::size_t header_bytes)
      : header_bytes_(header_bytes),
        slots_(slots),
        stride_(stride_of(slot_bytes + header_bytes)),
        other_stride_(stride_of(slot_bytes / 4 + header_bytes)) {}

  unsigned slots(Context context) const { return context == 0 ? slots_ : kWordSlots; }
  unsigned words(Context context) const { return (slots(context) + kWordSlots - 1) / kWordSlots; }
  unsigned first_word(Context context) const { return context == 0 ? 0 : words(0) + context - 1; }
  unsigned all_words() const { return first_word(kContextCount); }
  unsigned all_slots() const { return first_slot(kContextCount); }
  Context context_of_word(unsigned word) const { return word < words(0) ? 0 : word - words(0) + 1; }
  // Counted over all sets: how a slot is named in immediate data.
  unsigned first_slot(Context context) const {
    return context == 0 ? 0 : slots_ + (context - 1) * kWordSlots;
  }
  // The context of a slot counted over all sets.
  Context context_of(unsigned slot) const {
    return slot < slots_ ? 0 : 1 + (slot - slots_) / kWordSlots;
  }

  std::size_t bytes() const { return offset(kContextCount, 0); }
  std::size_t offset(Context context, unsigned slot) const {
    return context == 0 ? slot * stride_
                        : slots_ * stride_ +
                              ((context - 1) * std::size_t{kWordSlots} + slot) * other_stride_;
  }
  std::size_t header_bytes() const { return header_bytes_; }
  // Slots that a message of `bytes` takes; an empty one takes a slot too.
  std::size_t slots_of(Context context, std::size_t bytes) const {
    const std::size_t stride = context == 0 ? stride_ : other_stride_;
    return bytes + header_bytes_ <= stride ? 1 : (bytes - 1 + header_bytes_) / stride + 1;
  }
  unsigned longest_run(Context context) const {
    return std::min(slots(context), kWordSlots * kRunShare) / kRunShare;
  }
  // Bytes of message in a run of `count` slots.
  std::size_t run_bytes(Context context, unsigned count) const {
    return count * (context == 0 ? stride_ : other_stride_) - header_bytes_;
  }

 private:
  // An odd number of cache lines, so that the first lines of slots spread over a cache's sets.
  static std::size_t stride_of(std::size_t bytes) { return ((bytes + 63) / 64 | 1) * 64; }

  std::size_t header_bytes_ = 0;
  unsigned slots_ = kMinSlots;
  std::size_t stride_ = 64;
  std::size_t other_stride_ = 64;
};

// Which slots of one set are free.
class SlotPool {
 public:
  explicit SlotPool(unsigned slots = kMinSlots) : slots_(slots), free_count_(slots) {
    for (unsigned at = 0; at < slots; at += kWordSlots)
      free_.push_back(SlotRun{0, std::min(kWordSlots, slots - at)}.bits());
  }

  // A free run of `count` slots, at most kWordSlots: the next one behind what was taken last. So
  // slots are used in turn, neighbours one after the other, and each rests for as long as it can:
  // what was read of it is out of the reader's way by then. Inlined, because an optional that a
  // call returns passes through memory in parts, for which its caller waits.
  [[gnu::always_inline]] std::optional<SlotRun> find(unsigned count) const {
    unsigned word = next_ / kWordSlots;
    std::uint64_t behind = ~std::uint64_t{0} << next_ % kWordSlots;
    for (std::size_t tries = 0; tries <= free_.size(); ++tries) {
      std::uint64_t starts = free_[word] & behind;  // where a run of `have` slots starts
      for (unsigned have = 1; have < count && starts != 0;) {
        const unsigned step = std::min(have, count - have);
        starts &= starts >> step;
        have += step;
      }
      if (starts != 0)
        return SlotRun{word * kWordSlots + static_cast<unsigned>(std::countr_zero(starts)), count};
      word = word + 1 == free_.size() ? 0 : word + 1;
      behind = ~std::uint64_t{0};
    }
    return std::nullopt;
  }
  void take(const SlotRun& run) {
    next_ = run.first + run.count < slots_ ? run.first + run.count : 0;
    free_[run.word()] &= ~run.bits();
    free_count_ -= run.count;
  }
  // False: some of them are free.
  [[nodiscard]] bool give(unsigned word, std::uint64_t bits) {
    if ((free_[word] & bits) != 0) return false;
    free_[word] |= bits;
    free_count_ += static_cast<unsigned>(std::popcount(bits));
    return true;
  }

  unsigned slots() const { return slots_; }
  unsigned free() const { return free_count_; }
  std::uint64_t free_bits(unsigned word) const { return free_[word]; }
  // The bits of that word that stand for slots.
  std::uint64_t all_bits(unsigned word) const {
    return SlotRun{0, std::min(kWordSlots, slots_ - word * kWordSlots)}.bits();
  }

 private:
  unsigned slots_;
  unsigned free_count_;
  unsigned next_ = 0;
  std::vector<std::uint64_t> free_;
};

}  // namespace leat::detail
