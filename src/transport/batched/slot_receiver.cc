#include "transport/batched/slot_receiver.h"

#include <atomic>
#include <bit>
#include <cstddef>

#include "base/prefetch.h"

namespace leat::detail {

// Copied once, word by word, as the peer may write at any time.
inline SlotHeader SlotReceiver::header_of(unsigned slot) const {
  std::byte* place = headers_ != nullptr ? reinterpret_cast<std::byte*>(headers_ + slot)
                                         : at(slot) + offsetof(SlotFront, header);
  auto* source = reinterpret_cast<std::uint64_t*>(place);
  SlotHeaderWords words;
  // Relaxed: the acquire of the read or completion that announced this slot ordered it before.
  for (std::uint64_t& word : words)
    word = std::atomic_ref(*source++).load(std::memory_order_relaxed);
  return std::bit_cast<SlotHeader>(words);
}

bool SlotReceiver::run_at(unsigned slot, std::size_t bytes, SlotRun& run) const {
  if (bytes <= slot_bytes_) [[likely]] {
    run = {slot, 1};
    return true;
  }
  const std::size_t count = layout_.slots_of(context_, bytes);
  if (count > layout_.longest_run(context_) || slot % kWordSlots + count > kWordSlots) return false;
  run = {slot, static_cast<unsigned>(count)};
  return true;
}

bool SlotReceiver::run_of(unsigned slot, const SlotHeader& header, SlotRun& run) const {
  return header.check == check_of(header, key_) && run_at(slot, header.bytes(), run) &&
         (header.kind() != SlotKind::kBundle || run.count == 1);
}

bool SlotReceiver::put(const SlotRun& run, const SlotHeader& header) {
  const SlotOrder::Entry entry{run, header.bytes(), header.kind()};
  // Nothing comes after the end, but what was sent before it may be found later.
  if (end_ && static_cast<std::int32_t>(header.sequence - end_sequence_) >= 0) return false;
  if (!order_.put(header.place, entry)) return false;
  note(header);
  if (header.kind() == SlotKind::kEnd) {
    end_ = entry;
    end_sequence_ = header.sequence;
  }
  return true;
}

// The message at a fresh slot, the lowest of those whose bits flipped together.
const char* SlotReceiver::found_at(unsigned slot, const SlotHeader& header, std::uint64_t fresh,
                                   SlotRun& run) {
  if (!run_of(slot, header, run)) return "a slot with an impossible header";
  if ((run.bits() & ~fresh) != 0) return "a message whose slots it did not all fill";
  if (!put(run, header)) return "a slot with an impossible sequence number";
  return nullptr;
}

const char* SlotReceiver::see(unsigned word, std::uint64_t theirs, std::uint32_t& found) {
  std::uint64_t fresh = 0;
  if (!confirm_.see(word, theirs, fresh))
    return "a bitmap in which a bit flipped twice, or that has bits of no slot";
  if (headers_ != nullptr && fresh != 0) fetch_headers(word, fresh);
  while (fresh != 0) {
    const unsigned slot = word * kWordSlots + static_cast<unsigned>(std::countr_zero(fresh));
    const SlotHeader header = header_of(slot);
    prefetch_for_reading(at(slot));
    // The common message takes one slot and is in its turn.
    if (header.size <= slot_bytes_ && header.check == check_of(header, key_) && !end_ &&
        order_.append(header.place, {{slot, 1}, header.size})) [[likely]] {
      note(header);
      fresh &= fresh - 1;
      ++found;
      continue;
    }
    SlotRun run;
    const char* why = found_at(slot, header, fresh, run);
    if (why != nullptr) return why;
    fresh &= ~run.bits();
    ++found;
  }
  return nullptr;
}

// All of them at once; one after the other each would be waited for.
void SlotReceiver::fetch_headers(unsigned word, std::uint64_t fresh) const {
  const SlotHeader* at = headers_ + word * kWordSlots + std::countr_zero(fresh);
  const SlotHeader* last = headers_ + word * kWordSlots + std::bit_width(fresh) - 1;
  for (; at < last; at += FetchAhead::kLineBytes / sizeof(SlotHeader)) prefetch_for_reading(at);
  prefetch_for_reading(last);
}

// The taker of a message of `bytes` reads it, and then those that wait behind it.
void SlotReceiver::fetch_more_ahead(std::size_t bytes) const {
  const FetchAhead ahead(bytes);
  const SlotOrder::Entry* soon = order_.waiting(ahead.messages);
  if (soon != nullptr) fetch(soon->run.first, ahead.lines);
}

void SlotReceiver::fetch(unsigned slot, unsigned lines) const {
  const std::byte* first = at(slot);
  for (unsigned i = 0; i < lines; ++i) prefetch_for_reading(first + i * FetchAhead::kLineBytes);
}

const char* SlotReceiver::read_done() {
  if (!order_.has_hole() || order_.edge() != hole_) {
    hole_ = order_.edge();
    hole_reads_ = 0;
    return nullptr;
  }
  return ++hole_reads_ < kReadsPerHole ? nullptr : "messages with a gap between them";
}

const char* SlotReceiver::notified(unsigned slot, std::uint32_t place, std::size_t bytes,
                                   std::uint32_t& found, bool& known) {
  constexpr std::uint32_t kMask = (1U << kDoorbellPlaceBits) - 1;
  if (slot < layout_.slots(context_)) fetch(slot, FetchAhead(bytes).lines);
  // What was found is before the edge, or a little beyond; far less than half of what the bits
  // distinguish.
  const std::uint32_t ahead = (place - order_.edge()) & kMask;
  known = ahead > kMask / 2;
  if (ahead != 0) return known ? nullptr : notified_beyond(slot, place, found, known);
  SlotHeader header;
  SlotRun run;
  if (bytes == 0 || headers_ == nullptr) {
    header = header_of(slot);
    if (header.place != order_.edge() || !run_of(slot, header, run))
      return "a slot with an impossible header";
    if (bytes != 0 && bytes != layout_.header_bytes() + header.bytes())
      return "a message that is not as long as it says";
  } else {
    if (!run_at(slot, bytes, run)) return "a message beyond the slots";
    header.place = order_.edge();
    header.size = sized(bytes, SlotKind::kMessage);
    header.sequence = newest_;
  }
  known = true;
  ++found;
  return take_early(run, header);
}

// Others before it were not found yet.
const char* SlotReceiver::notified_beyond(unsigned slot, std::uint32_t place, std::uint32_t& found,
                                          bool& known) {
  if (headers_ != nullptr) return nullptr;  // it is flipped: a read shows it, with those before it
  // Its sender shows this flip only with that of a later message, which may never come. But as it
  // has landed all before it have.
  const SlotHeader header = header_of(slot);
  SlotRun run;
  if (doorbell_of(0, header.place ^ place) != 0 || !run_of(slot, header, run))
    return "a slot with an impossible header";
  known = true;
  return landed(header.sequence, found);
}

const char* SlotReceiver::landed(std::uint32_t sequence, std::uint32_t& found) {
  for (unsigned slot = 0; slot < layout_.slots(context_); ++slot) {
    if (confirm_.carries(slot)) continue;
    const SlotHeader header = header_of(slot);
    SlotRun run;
    // What lies here is old, or on its way and perhaps half written, or what we look for.
    if (!run_of(slot, header, run) || !order_.misses(header.place) ||
        static_cast<std::int32_t>(sequence - header.sequence) < 0)
      continue;
    const char* why = take_early(run, header);
    if (why != nullptr) return why;
    ++found;
  }
  return nullptr;
}

const char* SlotReceiver::take_early(const SlotRun& run, const SlotHeader& header) {
  if (!(headers_ != nullptr ? confirm_.take_flipped(run) : confirm_.take_early(run)))
    return "a message in slots that are in use";
  if (!put(run, header)) return "a slot with an impossible sequence number";
  return nullptr;
}

}  // namespace leat::detail
