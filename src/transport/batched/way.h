// Transport batched as a way of confirming (SlotWay): when a bundle is opened and closed, in which
// order things are published and looked at, and when a receiver that waits is notified. How a unit
// reaches the peer, and how the peer's bitmaps are read, is `Reach`: ByMemory or ByRequests.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include "transport/batched/receiver.h"
#include "transport/batched/sender.h"
#include "transport/batched/unbundling.h"
#include "transport/slots/order.h"
#include "transport/slots/slot_end.h"

namespace leat::detail {

// What BatchedWay calls. A reach is made of what it serves, which outlives it.
template <typename Reach>
concept BatchedReach = requires(Reach& reach, const Reach& is, Context context, const SlotRun& run,
                                SlotKind kind, std::size_t bytes) {
  requires std::constructible_from<Reach, SlotEnd&, BatchedSender&, BatchedReceiver&>;
  { Reach::kMemory } -> std::convertible_to<const SlotMemory&>;
  reach.started();

  // --- send side; find_run, post_sends, poll_sends as of SlotWay and QueuePair
  { reach.find_run(context, 1U) } -> std::same_as<SlotRun>;
  // Sends a unit, takes its run, publishes it, and notifies a receiver that waits for it. False:
  // would block, nothing is done.
  { reach.post_unit(context, run, kind, bytes) } -> std::same_as<bool>;
  // Tells the peer that all units up to now have landed. False: would block.
  { reach.land() } -> std::same_as<bool>;
  { reach.post_sends(std::span<const SendRequest>()) } -> std::same_as<std::size_t>;
  { reach.poll_sends(std::span<Completion>()) } -> std::same_as<std::size_t>;
  // The open bundle: it was opened, a message will be added, one was published, it will be posted.
  reach.bundle_opened(context, run);
  reach.bundle_grows();
  reach.pass_barrier();
  reach.bundle_closes();

  // --- receive side
  { reach.look() } -> std::same_as<bool>;

  reach.arm(Side::kSend);
  { is.outlook(Side::kSend, Look::kBrief) } -> std::same_as<Outlook>;
};

template <BatchedReach Reach>
class BatchedWay {
 public:
  static constexpr SlotMemory kMemory = Reach::kMemory;
  static constexpr bool kBundles = true;

  explicit BatchedWay(SlotEnd& end)
      : end_(end), sender_(end), receiver_(end), reach_(end, sender_, receiver_) {}
  void started() { reach_.started(); }

  // --- send side
  [[gnu::always_inline]] SlotRun find_run(Context context, unsigned count) {
    if (!close_bundle()) return {};
    return reach_.find_run(context, count);
  }
  bool post(Context context, const SlotRun& run, SlotKind kind, std::size_t bytes) {
    return close_bundle() && post_unit(context, run, kind, bytes);
  }
  bool post_end() {
    const auto run = find_run(0, 1);
    if (run.count == 0) return false;
    const std::size_t bytes = sender_.write_end(run);
    if (!post(0, run, SlotKind::kEnd, bytes)) return false;
    prepare_flush();
    return true;
  }
  // A receiver that comes to look only after we are gone cannot read our bitmap any more. So it
  // gets one number: up to that one all are in its memory.
  bool prepare_flush() { return close_bundle() && reach_.land(); }
  std::size_t post_sends(std::span<const SendRequest> requests) {
    return reach_.post_sends(requests);
  }
  void poll_send_errors() {
    end_.look_at_sends([this](std::span<Completion> all) { return reach_.poll_sends(all); });
  }

  // A receiver that waits is notified of each message, so then none shares a slot.
  bool shares_slot(std::size_t bytes, Context context) const {
    return sender_.shares_slot(bytes, context);
  }
  // Adds a message to the open bundle, which the receiver sees by its length alone.
  bool append(std::span<const std::byte> message, Context context) {
    if (!sender_.fits(message.size(), context) && !open_bundle(context)) [[unlikely]]
      return false;
    reach_.bundle_grows();
    sender_.add(message);
    reach_.pass_barrier();
    sender_.look_at_limit();
    if (sender_.may_notify()) [[unlikely]]
      post_at_once();
    return true;
  }

  // --- receive side
  bool look() { return reach_.look(); }
  bool waiting(Context context) const { return receiver_.waiting(context); }
  SlotOrder::Entry take(Context context) { return receiver_.take(context); }
  const std::byte* rode_along() { return receiver_.rode_along(); }
  void give_back(Context context, const SlotRun& run) noexcept {
    receiver_.give_back(context, run);
  }
  bool ended(Context context) const { return receiver_.ended(context); }
  bool begins_open_bundle(Context context) const { return receiver_.begins_open_bundle(context); }
  void begin_open_bundle(Context context) { receiver_.begin_open_bundle(context); }
  bool in_bundle(Context context) const { return receiver_.in_bundle(context); }
  void hand_out_bundled(Context context, Delivery& delivery) {
    receiver_.hand_out_bundled(context, delivery);
  }
  void begin_bundle(Context context, const SlotOrder::Entry& entry) {
    receiver_.begin_bundle(context, entry);
  }
  void release_bundled(Delivery& delivery) noexcept { receiver_.release_bundled(delivery); }

  // --- waiting
  void arm(Side side) { reach_.arm(side); }
  Outlook outlook(Side side, Look look) const { return reach_.outlook(side, look); }
  void add_stats(Stats& stats) const {
    sender_.add_stats(stats);
    receiver_.add_stats(stats);
  }

 private:
  // How often post_at_once() tries. The send queue is full for as long as the device takes for a
  // request, unless the peer is hostile: then the rest goes at the caller's next call.
  static constexpr unsigned kMostTriesAtOnce = 4096;

  bool post_unit(Context context, const SlotRun& run, SlotKind kind, std::size_t bytes) {
    if (!sender_.all_posted() && !post_rest()) [[unlikely]]
      return false;
    if (!reach_.post_unit(context, run, kind, bytes)) return false;
    if (!sender_.all_posted()) [[unlikely]]
      post_at_once();
    return true;
  }
  // Once a bundle, and so not compiled into the path of messages; as the next ones.
  [[gnu::noinline]] bool open_bundle(Context context) {
    if (!close_bundle()) return false;
    const auto run = reach_.find_run(context, 1);
    if (run.count == 0) {
      end_.credit_waits.add(1);
      return false;
    }
    sender_.open(context, run);
    reach_.bundle_opened(context, run);
    return true;
  }
  bool close_bundle() { return !sender_.has_bundle() || close_open_bundle(); }
  [[gnu::noinline]] bool close_open_bundle() {
    return sender_.close_bundle(
        [this](Context context, const SlotRun& run, SlotKind kind, std::size_t bytes) {
          reach_.bundle_closes();
          return post_unit(context, run, kind, bytes);
        });
  }
  bool post_rest() {
    return sender_.post_rest(
        [this](std::span<const SendRequest> requests) { return reach_.post_sends(requests); });
  }
  // A message was accepted, and the peer sleeps or reads in vain until it is notified of that one;
  // and the caller may not come again for long.
  [[gnu::noinline]] void post_at_once() {
    for (unsigned tries = 0; !(close_bundle() && post_rest()) && tries < kMostTriesAtOnce; ++tries)
      poll_send_errors();
  }

  SlotEnd& end_;
  alignas(64) BatchedSender sender_;
  alignas(64) BatchedReceiver receiver_;
  alignas(64) Reach reach_;
};

}  // namespace leat::detail
