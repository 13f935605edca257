// The receiver's end of one context of transport batched: from bits to messages in order. Pure, but
// for the slots' memory, which it reads.
//
// Everything that it learns, and all of the memory, comes from a peer and may be anything: what is
// impossible is answered by a text that says why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/batched/confirm.h"
#include "transport/slots/order.h"

namespace leat::detail {

// The immediate of a doorbell: a slot, counted over all contexts, and the low bits of its message's
// place. The place distinguishes it from one that is in that slot by the time the doorbell is
// heard.
inline constexpr unsigned kDoorbellPlaceBits = 20;
constexpr std::uint32_t doorbell_of(unsigned slot, std::uint32_t place) {
  return slot << kDoorbellPlaceBits | (place & ((1U << kDoorbellPlaceBits) - 1));
}
constexpr unsigned slot_of_doorbell(std::uint32_t immediate) {
  return immediate >> kDoorbellPlaceBits;
}

class SlotReceiver {
 public:
  SlotReceiver() = default;
  // `memory`: the slots of all contexts. `key`: of their headers. `headers`: where they stand, by
  // slots counted over all contexts; null: each at the start of its slot. `first`: as of SlotOrder.
  SlotReceiver(const SlotLayout& layout, Context context, std::byte* memory, std::uint64_t key,
               SlotHeader* headers = nullptr, std::uint32_t first = 0)
      : layout_(layout),
        context_(context),
        memory_(memory),
        headers_(headers == nullptr ? nullptr : headers + layout.first_slot(context)),
        key_(key),
        slot_bytes_(layout.run_bytes(context, 1)),
        confirm_(layout.slots(context)),
        order_(layout.slots(context), first),
        newest_(first) {}

  // --- what was learned; null, or why it cannot be. What was found is added to `found`.
  // A word of the sender's bitmap was read, which tells something new.
  const char* see(unsigned word, std::uint64_t theirs, std::uint32_t& found);
  // The same where headers stand in their slots. Words of which only a part had landed, or that are
  // older than what is known, tell nothing.
  const char* see(unsigned word, const Echo& theirs, std::uint32_t& found);
  bool tells_nothing(unsigned word, std::uint64_t theirs) const {
    return theirs == confirm_.seen(word);
  }
  bool tells_nothing(unsigned word, const Echo& theirs) const {
    return theirs.bits == confirm_.seen(word) && !confirm_.is_ahead(word);
  }
  // All words of one look at shared memory were seen. Its sender flips slots in the order of their
  // messages, so the next look shows what one has missed. A bitmap that was read by requests says
  // no such thing: its sender may announce a message by a doorbell alone, which comes when it may.
  const char* look_done();
  // The write that put the message with that place, modulo 2^kDoorbellPlaceBits, into this slot is
  // known to be complete, and so all before it. `bytes`: of that write, if the doorbell came with
  // it; then it is a plain message, and where headers are apart its own need not be looked at.
  // `known`: it was found, now or before.
  const char* notified(unsigned slot, std::uint32_t place, std::size_t bytes, std::uint32_t& found,
                       bool& known);
  // The same of all messages up to that sequence number.
  const char* landed(std::uint32_t sequence, std::uint32_t& found);

  // --- messages in order
  bool waiting() const { return order_.waiting(); }
  SlotOrder::Entry take() {
    const SlotOrder::Entry entry = order_.take();
    if (entry.bytes > FetchAhead::kLineBytes) fetch_more_ahead(entry.bytes);
    return entry;
  }
  const std::byte* bytes_of(const SlotRun& run) const {
    return at(run.first) + layout_.header_bytes();
  }
  // The next place that was not found: how many there were if nothing is missing.
  std::uint32_t found_places() const { return order_.edge(); }
  bool has_hole() const { return order_.has_hole(); }
  // The highest sequence number that was found. Where headers are apart doorbells do not carry it.
  std::uint32_t newest() const { return newest_; }
  // Whether that slot is known to carry a message that was not given back.
  bool carries(unsigned slot) const { return confirm_.carries(slot); }
  // A message of kind kEnd, once found; and its sequence number.
  const std::optional<SlotOrder::Entry>& end() const { return end_; }
  std::uint32_t end_sequence() const { return end_sequence_; }

  // --- slots given back
  // The word of our bitmap to publish.
  std::uint64_t release(const SlotRun& run) { return confirm_.release(run); }
  std::uint64_t seen(unsigned word) const { return confirm_.seen(word); }

 private:
  std::byte* at(unsigned slot) const { return memory_ + layout_.offset(context_, slot); }
  // What stands at the start of a slot; where headers are apart, without bits.
  Echo front_of(unsigned slot) const;
  bool is_whole(const Echo& front) const {
    return front.header.check ==
           (headers_ != nullptr ? check_of(front.header, key_) : check_of(front, key_));
  }
  // The run of a message of `bytes` at `slot`. False: there is none.
  bool run_at(unsigned slot, std::size_t bytes, SlotRun& run) const;
  // The run that the header at `slot` describes. False: none.
  bool run_of(unsigned slot, const Echo& front, SlotRun& run) const;
  const char* take_fresh(unsigned word, std::uint64_t fresh, std::uint32_t& found);
  const char* found_at(unsigned slot, const Echo& front, std::uint64_t fresh, SlotRun& run);
  const char* announced(unsigned slot, std::uint32_t place, std::size_t bytes, bool is_next,
                        std::uint32_t& found);
  const char* learn(unsigned slot, const Echo& front, std::uint32_t& found);
  const char* take_flipped(const SlotRun& run, const SlotHeader& header);
  bool put(const SlotRun& run, const SlotHeader& header);
  void note(const SlotHeader& header) {
    if (static_cast<std::int32_t>(header.sequence - newest_) > 0) newest_ = header.sequence;
  }
  void fetch_headers(unsigned word, std::uint64_t fresh) const;
  void fetch_more_ahead(std::size_t bytes) const;
  void fetch(unsigned slot, unsigned lines) const;

  SlotLayout layout_;
  Context context_ = 0;
  std::byte* memory_ = nullptr;
  SlotHeader* headers_ = nullptr;
  std::uint64_t key_ = 0;
  std::size_t slot_bytes_ = 0;  // of message in one slot
  ConfirmReceiver confirm_;
  SlotOrder order_;
  std::optional<SlotOrder::Entry> end_;
  std::uint32_t end_sequence_ = 0;
  std::uint32_t newest_ = 0;
  std::optional<std::uint32_t> hole_;  // the place that the last look missed
};

}  // namespace leat::detail
