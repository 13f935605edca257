// Batched confirmation (HiPower §3): which slots of one set carry messages, by two bitmaps, one on
// each side. Pure: what each side reads of the other's bitmap goes in, what to publish comes out.
//
// A bit for each slot on each side. Equal bits: the slot is free. The sender flips its bit when the
// message is in the slot; the receiver flips its bit when it has given the slot back. Each side
// only ever reads the other's words, later than they are and some states left out, but each word
// whole and never older than one read before.
//
// docs/transports/batched.md draws the states.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/slots/slots.h"

namespace leat::detail {

// The sender's end: takes slots, and gets them back by reading the receiver's bitmap.
class ConfirmSender {
 public:
  explicit ConfirmSender(unsigned slots = kMinSlots)
      : pool_(slots), mine_((slots + kWordSlots - 1) / kWordSlots) {}

  [[gnu::always_inline]] std::optional<SlotRun> find(unsigned count) const {
    return pool_.find(count);
  }
  // What the run's word of our bitmap is to be, once its message is there.
  std::uint64_t flipped(const SlotRun& run) const { return mine_[run.word()] ^ run.bits(); }
  std::uint64_t published(unsigned word) const { return mine_[word]; }
  // Takes a run that find() gave.
  void take(const SlotRun& run) {
    pool_.take(run);
    mine_[run.word()] ^= run.bits();
  }
  // The receiver's word as it was read; anything, from a peer. Adds the slots that came back to
  // `freed`. False: it gives back what it never had, or twice.
  [[nodiscard]] bool see(unsigned word, std::uint64_t theirs, unsigned& freed) {
    const std::uint64_t differ = mine_[word] ^ theirs;
    if ((differ & ~busy(word)) != 0) return false;
    const std::uint64_t back = busy(word) & ~differ;
    freed += static_cast<unsigned>(std::popcount(back));
    return pool_.give(word, back);
  }

  // Slots that carry a message which is not known to have come back.
  std::uint64_t busy(unsigned word) const { return pool_.all_bits(word) & ~pool_.free_bits(word); }
  unsigned slots() const { return pool_.slots(); }
  unsigned free() const { return pool_.free(); }

 private:
  SlotPool pool_;
  std::vector<std::uint64_t> mine_;
};

// The receiver's end: finds the slots that carry messages, and gives them back.
//
// It may learn otherwise, before a read shows the flip, that a slot carries a message. Where that
// brings the word along, as of that message (learn), the slot can be given back at once: a read
// that is older is known by its place, so two flips are never taken for none.
class ConfirmReceiver {
 public:
  explicit ConfirmReceiver(unsigned slots = kMinSlots) {
    for (unsigned at = 0; at < slots; at += kWordSlots)
      words_.push_back({.all = SlotRun{0, std::min(kWordSlots, slots - at)}.bits()});
  }

  // The sender's word as it was read; anything, from a peer. `fresh`: the slots that carry a
  // message since. False: a bit flipped twice, or stands for no slot.
  [[nodiscard]] bool see(unsigned word, std::uint64_t theirs, std::uint64_t& fresh) {
    Word& at = words_[word];
    fresh = theirs ^ at.seen;
    if ((fresh & (at.held | ~at.all)) != 0) return false;
    at.seen = theirs;
    at.held |= fresh;
    return true;
  }
  // The same where each word comes with the place of the unit that flipped it last. A read may be
  // older than what was learned otherwise, and then tells nothing. Places are compared only until a
  // read shows what was learned, so it does not matter how long a word rests.
  [[nodiscard]] bool see(unsigned word, std::uint64_t theirs, std::uint32_t place,
                         std::uint64_t& fresh) {
    Word& at = words_[word];
    fresh = 0;
    if (!at.shown && static_cast<std::int32_t>(place - at.place) < 0) return true;
    at.shown = true;
    return see(word, theirs, fresh);
  }
  // The sender's word as of the unit with that place, which was not known until now, and so is the
  // word's latest one; learned otherwise than by a read.
  [[nodiscard]] bool learn(unsigned word, std::uint64_t theirs, std::uint32_t place,
                           std::uint64_t& fresh) {
    words_[word].place = place;
    words_[word].shown = false;
    return see(word, theirs, fresh);
  }
  // A run that is known to carry a message because its sender flips before it announces. False: it
  // carries one already, or does not belong to this set.
  [[nodiscard]] bool take_flipped(const SlotRun& run) {
    if (run.word() >= words_.size()) return false;
    Word& at = words_[run.word()];
    if ((run.bits() & (at.held | ~at.all)) != 0) return false;
    at.held |= run.bits();
    at.seen ^= run.bits();
    return true;
  }
  // A run whose message was consumed; once. The word of our bitmap to publish.
  std::uint64_t release(const SlotRun& run) {
    Word& at = words_[run.word()];
    at.held &= ~run.bits();
    return at.mine ^= run.bits();
  }

  // The sender's word as it was last learned.
  std::uint64_t seen(unsigned word) const { return words_[word].seen; }
  bool carries(unsigned slot) const {
    return (words_[slot / kWordSlots].held >> slot % kWordSlots & 1) != 0;
  }
  // Whether a read of that word may be older than what is known.
  bool is_ahead(unsigned word) const { return !words_[word].shown; }

 private:
  struct Word {
    std::uint64_t all = 0;    // set once
    std::uint64_t seen = 0;   // the sender's, as last learned
    std::uint64_t mine = 0;   // ours, as published
    std::uint64_t held = 0;   // carry a message that was not given back
    std::uint32_t place = 0;  // of the unit that `seen` was learned with
    bool shown = true;        // a read has shown `seen`, so none shows an older word any more
  };

  std::vector<Word> words_;
};

}  // namespace leat::detail
