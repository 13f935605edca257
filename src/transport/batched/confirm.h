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
    const std::uint64_t busy = pool_.all_bits(word) & ~pool_.free_bits(word);
    const std::uint64_t differ = mine_[word] ^ theirs;
    if ((differ & ~busy) != 0) return false;
    const std::uint64_t back = busy & ~differ;
    freed += static_cast<unsigned>(std::popcount(back));
    return pool_.give(word, back);
  }

  unsigned slots() const { return pool_.slots(); }
  unsigned free() const { return pool_.free(); }

 private:
  SlotPool pool_;
  std::vector<std::uint64_t> mine_;
};

// The receiver's end: finds the slots that carry messages, and gives them back.
//
// It may learn otherwise, before it sees the flip, that a slot carries a message: take_early. Such
// a slot is given back only after its flip was seen; else the sender might flip it once more, and
// two flips look like none.
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
    const std::uint64_t flipped = theirs ^ at.seen;
    const std::uint64_t known = flipped & at.early;
    fresh = flipped & ~known;
    if ((fresh & (at.held | ~at.all)) != 0) return false;
    at.seen = theirs;
    at.early &= ~known;
    at.held |= fresh;
    const std::uint64_t back = at.owed & known;
    at.owed &= ~back;
    give_back(at, back);
    return true;
  }
  // False: the run carries a message already, or does not belong to this set.
  [[nodiscard]] bool take_early(const SlotRun& run) {
    if (run.word() >= words_.size()) return false;
    Word& at = words_[run.word()];
    if ((run.bits() & (at.held | ~at.all)) != 0) return false;
    at.held |= run.bits();
    at.early |= run.bits();
    return true;
  }
  // The same where the sender flips before it announces: then that is as good as having seen it.
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
    const std::uint64_t early = run.bits() & at.early;
    if (early != 0) [[unlikely]]
      at.owed |= early;
    give_back(at, run.bits() & ~early);
    return at.mine;
  }

  std::uint64_t published(unsigned word) const { return words_[word].mine; }
  // The sender's word as it was last learned.
  std::uint64_t seen(unsigned word) const { return words_[word].seen; }
  bool carries(unsigned slot) const {
    return (words_[slot / kWordSlots].held >> slot % kWordSlots & 1) != 0;
  }
  // Slots consumed that cannot be given back before the sender's bitmap is read again.
  bool owes(unsigned word) const { return words_[word].owed != 0; }

 private:
  struct Word {
    std::uint64_t all = 0;    // set once
    std::uint64_t seen = 0;   // the sender's, as last read
    std::uint64_t mine = 0;   // ours, as published
    std::uint64_t held = 0;   // carry a message that was not given back
    std::uint64_t early = 0;  // of those: their flip was not seen
    std::uint64_t owed = 0;   // of those: consumed
  };

  static void give_back(Word& at, std::uint64_t bits) {
    at.mine ^= bits;
    at.held &= ~bits;
  }

  std::vector<Word> words_;
};

}  // namespace leat::detail
