// What the send side of transport batched does wherever the peer's memory lies: which slots are
// free, the open bundle, the numbers, and how often it may notify a receiver that waits. It looks
// at and writes our own head only; by_memory.h and by_requests.h move things to the peer.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/counter.h"
#include "transport/batched/bundle.h"
#include "transport/batched/confirm.h"
#include "transport/batched/doorbell.h"
#include "transport/batched/parts.h"
#include "transport/slots/slot_end.h"
#include "transport/transport.h"

namespace leat::detail {

// Threads: the send side's. Throws kProtocol for what a peer must not write.
class BatchedSender {
 public:
  explicit BatchedSender(SlotEnd& end)
      : end_(end), head_(*reinterpret_cast<BatchedHead*>(end.head())) {}
  // `share`: messages above this share of a slot go alone.
  void start(std::size_t share);

  // --- room
  // A free run, or one without slots. `look` takes in what the receiver gave back, when it pays to
  // look.
  template <typename Look>
  [[gnu::always_inline]] SlotRun find(Context context, unsigned count, Look&& look) {
    const ConfirmSender& slots = slots_[context];
    SlotRun run = run_of(slots, count);
    if (run.count != 0 && slots.free() >= look_below_[context]) [[likely]]
      return run;
    if (run.count == 0 && skip_looks_ != 0) {
      --skip_looks_;
      return {};
    }
    look();
    if (run.count == 0) run = run_of(slots, count);
    if (run.count != 0) {
      looks_in_vain_ = 0;
    } else {
      // The receiver's bitmap is a cache line that it writes: each look slows it down.
      skip_looks_ = std::min(1U << std::min(looks_in_vain_++, 5U), kMostSkippedLooks);
    }
    return run;
  }
  // Takes in the words that the peer gave back with, as they were read for `context`; if `among` is
  // given, of those slots alone.
  void take_given(BitmapWords& theirs, Context context, const BitmapWords* among = nullptr);
  // A look was begun.
  void count_look() { given_reads_.add(1); }
  // The caller sleeps between its looks, and so needs no other pause.
  void pause_no_looks() { skip_looks_ = 0; }

  // --- units: messages of their own, pieces, closed bundles
  const ConfirmSender& slots(Context context) const { return slots_[context]; }
  SlotHeader next_header(Context context, SlotKind kind, std::size_t bytes) const {
    SlotHeader header;
    header.place = places_[context];
    header.size = sized(bytes, kind);
    header.sequence = sequence_ + 1;
    header.check = check_of(header, end_.peer_header_key());
    return header;
  }
  // The same with our bitmap's word as it will be then.
  Echo next_echo(Context context, const SlotRun& run, SlotKind kind, std::size_t bytes) const {
    Echo echo{slots_[context].flipped(run), next_header(context, kind, bytes)};
    echo.header.check = check_of(echo, end_.peer_header_key());
    return echo;
  }
  // The unit of next_header() takes that run.
  void take(Context context, const SlotRun& run) {
    slots_[context].take(run);
    ++places_[context];
    ++sequence_;
  }
  // Stores what the receiver looks at first of all, with how far the open bundle is filled.
  void publish() {
    const Posted posted{
        sequence_, has_bundle() ? end_.layout().first_slot(bundle_.context) + bundle_.run.first : 0,
        bundle_.bytes};
    // Release: the bytes of the bundle and the bitmap come before.
    std::atomic_ref(head_.posted).store(posted.word(), std::memory_order_release);
  }
  std::uint32_t sequence() const { return sequence_; }
  // Puts the message that ends all into a run of context 0. Returns its bytes.
  std::size_t write_end(const SlotRun& run);

  // --- the open bundle
  bool shares_slot(std::size_t bytes, Context context) const {
    return bytes < too_long_to_bundle_[context != 0] && !doorbell_.may_notify();
  }
  bool fits(std::size_t bytes, Context context) const {
    // A receiver copies so many bytes of a short message.
    const std::size_t needed = Bundled::kHeadBytes + std::max(bytes, Delivery::kSmallBytes);
    return has_bundle() && bundle_.context == context &&
           bundle_.bytes + needed <= bundle_room_[context != 0];
  }
  // Opens an empty one. Its place is that of the next unit.
  void open(Context context, const SlotRun& run) {
    bundle_ = {context, run, 0, end_.outgoing_message(context, run)};
  }
  std::uint32_t next_place(Context context) const { return places_[context]; }
  // The end of the open bundle, where the next message goes.
  const std::byte* bundle_end() const { return bundle_.end; }
  // Adds a message that fits, and publishes it.
  [[gnu::always_inline]] void add(std::span<const std::byte> message) {
    const std::uint64_t size = sealed(static_cast<std::uint32_t>(message.size()));
    std::memcpy(bundle_.end, &size, sizeof size);
    if (!message.empty()) std::memcpy(bundle_.end + sizeof size, message.data(), message.size());
    bundle_.bytes += Bundled::taken(message.size());
    bundle_.end += Bundled::taken(message.size());
    publish();
  }
  bool has_bundle() const { return bundle_.run.count != 0; }
  // Requires has_bundle(). Posts the bundle by `post(context, run, kind, bytes)`. True: none is
  // open any more. False: `post` found no room, and the bundle is open as before.
  template <typename Post>
  bool close_bundle(Post&& post) {
    const OpenBundle bundle = std::exchange(bundle_, {});
    if (post(bundle.context, bundle.run, SlotKind::kBundle, bundle.bytes)) return true;
    bundle_ = bundle;
    publish();
    return false;
  }

  // --- the doorbell
  // Takes in how often the receiver allows to be notified.
  void look_at_limit() {
    // Relaxed: the number orders nothing; the barrier between publish() and this does.
    const std::uint64_t word = std::atomic_ref(head_.notify_limit).load(std::memory_order_relaxed);
    if (word != limit_word_) [[unlikely]]
      take_limit(word);
  }
  bool may_notify() const { return doorbell_.may_notify(); }
  // A notification was posted, or will be.
  void notified() {
    doorbell_.notify();
    doorbells_.add(1);
  }
  // Notifies the receiver by `immediate`. `request` is empty, or a write of the unit's bytes where
  // they lie already, which says how long it is. `post`: as QueuePair::post_send; what it does not
  // take is left for post_rest().
  template <typename Post>
  void notify(SendRequest request, std::uint32_t immediate, Post&& post) {
    request.opcode = Opcode::kWriteWithImmediate;
    request.signaled = false;
    request.inlined = true;
    request.immediate = immediate;
    request.remote_key = end_.peer().key;
    if (request.bytes == 0) request.remote_address = end_.peer().address;
    notified();
    if (!all_posted() || post(std::span<const SendRequest>(&request, 1)) == 0) add_rest(request);
  }

  // --- what must go before anything else, since the send queue has taken only a part
  bool all_posted() const { return rest_.empty(); }
  void add_rest(const SendRequest& request) { rest_.push_back(request); }
  // True: nothing is left. `post`: as QueuePair::post_send.
  template <typename Post>
  bool post_rest(Post&& post) {
    while (!rest_.empty()) {
      const std::size_t accepted = post(std::span<const SendRequest>(rest_));
      if (accepted == 0) return false;
      rest_.erase(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(accepted));
    }
    return true;
  }

  void add_stats(Stats& stats) const {
    stats.confirm_reads += given_reads_.get();
    stats.doorbells += doorbells_.get();
  }

 private:
  static SlotRun run_of(const ConfirmSender& slots, unsigned count) {
    return slots.find(count).value_or(SlotRun{});
  }
  // The most words that stay unread between two looks of a blocked sender.
  static constexpr unsigned kMostSkippedLooks = 32;

  unsigned threshold(Context context) const {
    return slots_[context].slots() * end_.options().confirm_threshold / 100;
  }
  void take_limit(std::uint64_t word);

  SlotEnd& end_;
  BatchedHead& head_;
  // --- set once; context 0, the other ones
  std::array<std::size_t, 2> bundle_room_{};  // bytes of a slot that a bundle may take
  std::array<std::size_t, 2> too_long_to_bundle_{};

  std::array<ConfirmSender, kContextCount> slots_;
  std::array<std::uint32_t, kContextCount> places_{};  // units sent in each context
  std::array<unsigned, kContextCount> look_below_{};   // free slots, under which it pays to look
  BitmapWords given_seen_{};
  std::uint32_t sequence_ = 0;  // units sent in all
  OpenBundle bundle_;
  DoorbellSender doorbell_;
  std::uint64_t limit_word_ = 0;
  unsigned skip_looks_ = 0;  // while blocked
  unsigned looks_in_vain_ = 0;
  std::vector<SendRequest> rest_;
  Counter doorbells_;
  Counter given_reads_;
};

}  // namespace leat::detail
