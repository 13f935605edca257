#include "transport/batched/slot_receiver.h"

#include <atomic>
#include <bit>
#include <cstddef>

#include "base/prefetch.h"

namespace leat::detail {
namespace {

constexpr const char* kImpossibleHeader = "a slot with an impossible header";
constexpr const char* kImpossibleBits =
    "a bitmap in which a bit flipped twice, or that has bits of no slot";

}  // namespace

// Copied once, word by word, as the peer may write at any time.
inline Echo SlotReceiver::front_of(unsigned slot) const {
  EchoWords words{};
  std::byte* place = headers_ != nullptr ? reinterpret_cast<std::byte*>(headers_ + slot)
                                         : at(slot) + offsetof(SlotFront, echo);
  auto* source = reinterpret_cast<std::uint64_t*>(place);
  // Relaxed: the acquire of the read or completion that announced this slot ordered it before.
  for (std::size_t i = headers_ != nullptr ? 1 : 0; i < words.size(); ++i)
    words[i] = std::atomic_ref(*source++).load(std::memory_order_relaxed);
  return std::bit_cast<Echo>(words);
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

bool SlotReceiver::run_of(unsigned slot, const Echo& front, SlotRun& run) const {
  return is_whole(front) && run_at(slot, front.header.bytes(), run) &&
         (front.header.kind() != SlotKind::kBundle || run.count == 1);
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
const char* SlotReceiver::found_at(unsigned slot, const Echo& front, std::uint64_t fresh,
                                   SlotRun& run) {
  if (!run_of(slot, front, run)) return kImpossibleHeader;
  if ((run.bits() & ~fresh) != 0) return "a message whose slots it did not all fill";
  if (!put(run, front.header)) return "a slot with an impossible sequence number";
  return nullptr;
}

const char* SlotReceiver::see(unsigned word, std::uint64_t theirs, std::uint32_t& found) {
  std::uint64_t fresh = 0;
  if (!confirm_.see(word, theirs, fresh)) return kImpossibleBits;
  if (fresh != 0) fetch_headers(word, fresh);
  return take_fresh(word, fresh, found);
}

const char* SlotReceiver::see(unsigned word, const Echo& theirs, std::uint32_t& found) {
  if (!is_whole(theirs)) return nullptr;  // a later read shows it
  std::uint64_t fresh = 0;
  if (!confirm_.see(word, theirs.bits, theirs.header.place, fresh)) return kImpossibleBits;
  return take_fresh(word, fresh, found);
}

// Slots of a word whose bits flipped.
inline const char* SlotReceiver::take_fresh(unsigned word, std::uint64_t fresh,
                                            std::uint32_t& found) {
  while (fresh != 0) {
    const unsigned slot = word * kWordSlots + static_cast<unsigned>(std::countr_zero(fresh));
    const Echo front = front_of(slot);
    const SlotHeader& header = front.header;
    prefetch_for_reading(at(slot));
    // The common message takes one slot and is in its turn.
    if (header.size <= slot_bytes_ && is_whole(front) && !end_ &&
        order_.append(header.place, {{slot, 1}, header.size})) [[likely]] {
      note(header);
      fresh &= fresh - 1;
      ++found;
      continue;
    }
    SlotRun run;
    const char* why = found_at(slot, front, fresh, run);
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

const char* SlotReceiver::look_done() {
  std::optional<std::uint32_t> missed;
  if (order_.has_hole()) missed = order_.edge();
  const bool stays = missed && missed == hole_;
  hole_ = missed;
  return stays ? "messages with a gap between them" : nullptr;
}

const char* SlotReceiver::notified(unsigned slot, std::uint32_t place, std::size_t bytes,
                                   std::uint32_t& found, bool& known) {
  constexpr std::uint32_t kMask = (1U << kDoorbellPlaceBits) - 1;
  if (slot < layout_.slots(context_)) fetch(slot, FetchAhead(bytes).lines);
  // What was found is before the edge, or a little beyond; far less than half of what the bits
  // distinguish.
  const std::uint32_t ahead = (place - order_.edge()) & kMask;
  known = ahead > kMask / 2;
  if (known) return nullptr;
  if (headers_ == nullptr) {
    const char* why = announced(slot, place, bytes, ahead == 0, found);
    known = confirm_.carries(slot);
    return why == nullptr && !known ? kImpossibleHeader : why;
  }
  if (ahead != 0) return nullptr;  // it is flipped: a read shows it, with those before it
  SlotHeader header;
  SlotRun run;
  if (bytes == 0) {
    const Echo front = front_of(slot);
    header = front.header;
    if (header.place != order_.edge() || !run_of(slot, front, run)) return kImpossibleHeader;
  } else {
    if (!run_at(slot, bytes, run)) return "a message beyond the slots";
    header.place = order_.edge();
    header.size = sized(bytes, SlotKind::kMessage);
    header.sequence = newest_;
  }
  known = true;
  ++found;
  return take_flipped(run, header);
}

// The unit brings the bitmap's word along. Its sender shows the flips of others before it only with
// those of later ones, which may never come; but as it has landed, all before it have.
const char* SlotReceiver::announced(unsigned slot, std::uint32_t place, std::size_t bytes,
                                    bool is_next, std::uint32_t& found) {
  const Echo front = front_of(slot);
  SlotRun run;
  if (doorbell_of(0, front.header.place ^ place) != 0 || !run_of(slot, front, run))
    return kImpossibleHeader;
  if (bytes != 0 && bytes != layout_.header_bytes() + front.header.bytes())
    return "a message that is not as long as it says";
  return is_next ? learn(slot, front, found) : landed(front.header.sequence, found);
}

const char* SlotReceiver::learn(unsigned slot, const Echo& front, std::uint32_t& found) {
  const unsigned word = slot / kWordSlots;
  std::uint64_t fresh = 0;
  if (!confirm_.learn(word, front.bits, front.header.place, fresh)) return kImpossibleBits;
  return take_fresh(word, fresh, found);
}

const char* SlotReceiver::landed(std::uint32_t sequence, std::uint32_t& found) {
  for (unsigned slot = 0; slot < layout_.slots(context_); ++slot) {
    if (confirm_.carries(slot)) continue;
    const Echo front = front_of(slot);
    SlotRun run;
    // What lies here is old, or on its way and perhaps half written, or what we look for.
    if (!run_of(slot, front, run) || !order_.misses(front.header.place) ||
        static_cast<std::int32_t>(sequence - front.header.sequence) < 0)
      continue;
    const char* why = nullptr;
    if (headers_ == nullptr) {
      why = learn(slot, front, found);
    } else {
      why = take_flipped(run, front.header);
      ++found;
    }
    if (why != nullptr) return why;
  }
  return nullptr;
}

const char* SlotReceiver::take_flipped(const SlotRun& run, const SlotHeader& header) {
  if (!confirm_.take_flipped(run)) return "a message in slots that are in use";
  if (!put(run, header)) return "a slot with an impossible sequence number";
  return nullptr;
}

}  // namespace leat::detail
