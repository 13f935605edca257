// What the receive side of transport batched does wherever the peer's memory lies: it takes in what
// a read of the peer's bitmap showed, doorbells, and messages that are known to have landed; hands
// out bundles; and gives slots back. by_memory.h and by_requests.h read the bitmap, and say when.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/counter.h"
#include "transport/batched/doorbell.h"
#include "transport/batched/parts.h"
#include "transport/batched/slot_receiver.h"
#include "transport/slots/slot_end.h"
#include "transport/transport.h"

namespace leat::detail {

// Threads: the receive side's. Throws kProtocol for what a peer must not write.
class BatchedReceiver {
 public:
  // Posts the receives for doorbells.
  explicit BatchedReceiver(SlotEnd& end);
  // `doorbell`: in its first state. `headers`: where they stand, by slots of all contexts; null:
  // each at the start of its slot.
  void start(const DoorbellReceiver& doorbell, SlotHeader* headers);

  // --- messages
  bool waiting(Context context) const {
    return in_bundle(context) || receivers_[context].waiting() || open_waits(context);
  }
  SlotOrder::Entry take(Context context) {
    ++taken_;
    return receivers_[context].take();
  }
  const std::byte* rode_along() { return std::exchange(rode_along_, nullptr); }
  void give_back(Context context, const SlotRun& run) noexcept;
  bool ended(Context context) const;
  bool begins_open_bundle(Context context) const {
    return !in_bundle(context) && open_waits(context) && !receivers_[context].waiting();
  }
  void begin_open_bundle(Context context);
  void begin_bundle(Context context, const SlotOrder::Entry& entry);
  bool in_bundle(Context context) const { return !unbundling_[context].messages.empty(); }
  [[gnu::always_inline]] void hand_out_bundled(Context context, Delivery& delivery);
  void release_bundled(Delivery& delivery) noexcept;

  // --- what has come
  // Takes in doorbells and messages that have landed; `look_at_filled` reads the bitmap. True:
  // there was something, and there may be more.
  template <typename LookAtFilled>
  bool look(LookAtFilled&& look_at_filled) {
    // A message that a doorbell announced is handed out before anything else is looked at; the
    // caller comes again. After the end of the queue pair the rest is looked at nevertheless: what
    // landed before the end still counts.
    const bool heard = hear();
    if (heard && end_.receive_error.empty()) return true;
    bool found = look_at_landed();
    if (!has_end_ && end_.receive_error.empty()) found |= look_at_filled();
    return heard || found;
  }
  // Whether to read the bitmap now, when nothing is left of what was found. Instead of a read it
  // may be time for `allow`, which tells the sender that it may notify this side.
  template <typename Allow>
  bool should_read(Allow&& allow) {
    const DoorbellReceiver::Step next = doorbell_.next(arrived_);
    if (next == DoorbellReceiver::Step::kAllow) allow();
    return next == DoorbellReceiver::Step::kRead;
  }
  // A read begins. One at a time.
  void begin_read() {
    doorbell_.read_posted();
    reads_.add(1);
  }
  // `Words`: BitmapWords or BitmapEchoes.
  template <typename Words>
  struct Read {
    std::uint64_t posted = 0;  // the peer's word
    Words& filled;             // and its bitmap, not older than the word
    bool quick = false;        // it was here at once
    bool has_flips = true;     // false: the bitmap is known to be as it was
  };
  // Takes in a read. `see_more(posted)` runs if more of the peer's open bundle is filled than is
  // known here, and returns whether that is all known now. True: there was something.
  template <typename Words, typename SeeMore>
  bool take_read(const Read<Words>& read, SeeMore&& see_more) {
    const std::uint32_t before = arrived_;
    if (read.has_flips) take_filled(read.filled);
    const Posted posted = Posted::of(read.posted);
    const bool complete = !shows_more(posted) || see_more(posted);
    return end_read(read.posted, read.quick, before, complete);
  }
  // The read showed that nothing has changed.
  void end_vain_read() { doorbell_.read_done(doorbell_.posted(), arrived_, true); }

  // --- the peer's open bundle
  // Its messages, as far as `posted` says, lie in their slot; or `pulled`, until the next pull.
  void open_in_place(const Posted& posted);
  void open_pulled(const Posted& posted, const std::byte* pulled);
  // Pulled messages that were not handed out come once more.
  void drop_pulled();
  bool open_waits() const { return open_waits(open_.context); }

  // --- the doorbell
  const DoorbellReceiver& doorbell() const { return doorbell_; }
  bool may_allow() const { return !doorbell_.allowed() && !doorbell_.reading(); }
  // Allows the peer to notify us some more. The caller writes limit() into the peer's memory before
  // the next read, and says fenced() once a full barrier was passed since.
  void allow() noexcept;
  std::uint64_t limit() const { return sealed(doorbell_.limit()); }
  void fenced() { doorbell_.fenced(); }

  // --- what is known
  const SlotReceiver& slots(Context context) const { return receivers_[context]; }
  std::uint32_t arrived() const { return arrived_; }      // units found ever
  std::uint64_t unbundled() const { return unbundled_; }  // messages of bundles handed out ever
  std::uint64_t flips() const { return flips_; }          // of slots found by reads ever
  std::uint64_t posted_seen() const { return posted_seen_; }
  bool has_end() const { return has_end_; }
  // A message is missing between others.
  bool has_hole() const { return holes_ != 0; }
  // Whether our side has sent since the last call.
  bool answered();
  // Whether slots were given back since the last call.
  bool take_gave_back() { return std::exchange(gave_back_, false); }
  // Nothing can come any more.
  bool is_over() const { return has_end_ || !end_.receive_error.empty(); }
  // Nothing can come without an event.
  bool may_sleep() const { return holes_ == 0 && doorbell_.may_sleep(arrived_); }
  // `may_sleep`: nothing that the caller does forbids it either.
  Outlook outlook(Look look, bool may_sleep) const;
  void add_stats(Stats& stats) const {
    stats.confirm_reads += reads_.get();
    stats.slots_confirmed += confirmed_.get();
  }

 private:
  bool open_waits(Context context) const {
    return open_.end != 0 && open_.context == context && uses_[open_.slot].taken_bytes < open_.end;
  }
  void bundle_handed_out(Context context);
  bool hear();
  void take_doorbell(const Completion& completion);
  bool look_at_landed();
  template <typename Words>
  void take_filled(Words& theirs);
  bool shows_more(const Posted& posted);
  bool end_read(std::uint64_t posted, bool quick, std::uint32_t before, bool complete);
  void note_newest(Context context);
  void found_end();
  void check(const char* why) {
    if (why != nullptr) [[unlikely]]
      end_.nonsense(why);
  }

  SlotEnd& end_;
  BatchedHead& head_;

  std::array<std::size_t, 2> bundle_room_{};  // of context 0, of each other one; set once
  std::array<SlotReceiver, kContextCount> receivers_;
  std::array<Unbundling, kContextCount> unbundling_;
  OpenView open_;
  std::vector<BundleUse> uses_;  // by slot of all contexts
  std::uint64_t unbundled_ = 0;
  DoorbellReceiver doorbell_;
  const std::byte* rode_along_ = nullptr;  // of the message handed out next, until the next look
  std::uint32_t arrived_ = 0;
  std::uint32_t taken_ = 0;        // units handed out ever
  std::uint32_t newest_ = 0;       // the highest sequence number found
  std::uint64_t landed_seen_ = 0;  // the word
  std::uint64_t holes_ = 0;        // bit c: in context c a message is missing between others
  std::uint64_t posted_seen_ = 0;  // the sender's word, at the last read
  std::uint64_t own_posted_ = 0;   // our own word, at the last answered()
  unsigned last_word_ = 0;         // in which a read found something
  std::uint64_t flips_ = 0;
  std::size_t used_receives_ = 0;    // by doorbells, not replaced yet
  std::array<Completion, 4> heard_;  // scratch of hear(), so that no call initialises it
  bool gave_back_ = false;
  bool has_end_ = false;
  std::array<std::uint32_t, kContextCount> end_places_{};
  Counter reads_;
  Counter confirmed_;  // units found by reads
};

}  // namespace leat::detail
