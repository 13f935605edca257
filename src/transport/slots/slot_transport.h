// The transports confirm-each and batched: messages in slots of the receiver's memory, as many as
// were made when connecting and no more. They differ in their way of confirming, which is how the
// receiver learns of a message and the sender of a free slot: SlotTransport is made of the memory
// (SlotEnd) and one such way, and each combination is a class of its own, without a virtual call
// between the two.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/parts/pieces.h"
#include "transport/parts/reassembly.h"
#include "transport/slots/order.h"
#include "transport/slots/slot_end.h"
#include "transport/transport.h"

namespace leat::detail {

// What SlotTransport calls. A way is made of its SlotEnd, which outlives it; its threads are those
// of QueuePair.
template <typename Way>
concept SlotWay = requires(Way& way, const Way& is, Context context, const SlotRun& run,
                           SlotKind kind, std::size_t bytes, Delivery& delivery, Stats& stats) {
  requires std::constructible_from<Way, SlotEnd&>;
  { Way::kMemory } -> std::convertible_to<const SlotMemory&>;
  // Small messages share slots: SmallMessageWay.
  { Way::kBundles } -> std::convertible_to<bool>;
  // SlotEnd has started.
  way.started();

  // --- send side
  // A free run, of which nothing is taken yet; one without slots if there is no room. Looks for
  // slots that came back as far as it pays.
  { way.find_run(context, 1U) } -> std::same_as<SlotRun>;
  // Sends what stands at outgoing(): takes the run. False: would block, nothing is done.
  { way.post(context, run, kind, bytes) } -> std::same_as<bool>;
  { way.post_end() } -> std::same_as<bool>;
  // Everything accepted will be known to the peer once requests posted from now on are complete.
  // False: would block.
  { way.prepare_flush() } -> std::same_as<bool>;
  { way.post_sends(std::span<const SendRequest>()) } -> std::same_as<std::size_t>;
  // Throws if sending has failed; completes a flush.
  way.poll_send_errors();

  // --- receive side
  // Takes in what has come. True: perhaps more waits. Sets receive_error, or throws nonsense().
  { way.look() } -> std::same_as<bool>;
  { is.waiting(context) } -> std::same_as<bool>;
  { way.take(context) } -> std::same_as<SlotOrder::Entry>;
  // The bytes of the message that take() gave, where the device brought them beside its slot.
  { way.rode_along() } -> std::same_as<const std::byte*>;
  way.give_back(context, run);
  // The peer has ended, and all of that context was taken.
  { is.ended(context) } -> std::same_as<bool>;

  // --- waiting
  way.arm(Side::kSend);
  { is.outlook(Side::kSend, Look::kBrief) } -> std::same_as<Outlook>;
  is.add_stats(stats);
};

// A way that lets small messages share a slot.
template <typename Way>
concept SmallMessageWay = requires(Way& way, const Way& is, Context context, Delivery& delivery) {
  // Send side: whether a message of that size shares a slot now; then sends it so. False: would
  // block.
  { is.shares_slot(std::size_t{1}, context) } -> std::same_as<bool>;
  { way.append(std::span<const std::byte>(), context) } -> std::same_as<bool>;
  // Receive side: the next message of the context is in a bundle that its sender still fills; then
  // begins with that one.
  { is.begins_open_bundle(context) } -> std::same_as<bool>;
  way.begin_open_bundle(context);
  // take() gave a bundle.
  way.begin_bundle(context, SlotOrder::Entry());
  // The next message is in a bundle that was begun; then hands it out.
  { is.in_bundle(context) } -> std::same_as<bool>;
  way.hand_out_bundled(context, delivery);
  // Gives back a delivery of hand_out_bundled(); its ticket counts no slots.
  way.release_bundled(delivery);
};

template <typename Way>
class SlotTransport final : public Transport {
 public:
  // Look for failed sends at every so many messages; blocked senders look at each try.
  static constexpr std::uint64_t kMessagesPerErrorPoll = 64;

  // Allocates the slots: the peer may send once it has setup(). Throws kResource.
  SlotTransport(std::unique_ptr<Device> device, std::unique_ptr<QueuePair> queue_pair,
                const SlotOptions& options)
      : Transport(options.max_message_bytes),
        end_(Way::kMemory, std::move(device), std::move(queue_pair), options),
        way_(end_) {}

  std::vector<std::byte> setup() const override { return end_.setup(); }
  void start(std::span<const std::byte> peer_setup) override {
    static_assert(SlotWay<Way> && (!Way::kBundles || SmallMessageWay<Way>));
    end_.start(peer_setup);
    agree_with(end_.max_message_bytes());
    set_in_place(end_.max_in_place_bytes(0), end_.max_in_place_bytes(1));
    set_event_fds(end_.queue_pair());
    facts_.reserves_room = true;
    way_.started();
  }

  SendResult try_send(std::span<const std::byte> message, Context context) override;
  std::span<std::byte> try_reserve(std::size_t bytes, Context context) override;
  SendResult try_commit(std::size_t bytes) override;
  void abandon(Context context) noexcept override;
  bool try_end() override;
  bool try_flush() override;

  ReceiveResult try_receive(Context context, Delivery& delivery) override;
  void release(Delivery& delivery) noexcept override;

  void arm(Side side) override { way_.arm(side); }
  Outlook outlook(Side side, Look look) const override {
    Outlook outlook = way_.outlook(side, look);
    if (side == Side::kSend) outlook.soon = took_part_;
    return outlook;
  }
  std::string describe() const override { return end_.describe(); }
  void add_stats(Stats& stats) const override {
    end_.add_stats(stats);
    stats.reassembled_messages += reassembled_.get();
    way_.add_stats(stats);
  }

 private:
  struct Reservation {
    std::span<std::byte> memory;
    Context context = 0;
    SlotRun run;
  };

  // --- send side
  // For what is not on the path of messages, into which find_run() and send_one() are compiled.
  [[gnu::noinline]] SlotRun find_room(Context context, unsigned count) {
    return way_.find_run(context, count);
  }
  [[gnu::always_inline]] bool send_one(std::span<const std::byte> message, Context context,
                                       const SlotRun& run, SlotKind kind);
  [[gnu::noinline]] bool send_piece(std::span<const std::byte> message, Context context,
                                    const SlotRun& run, SlotKind kind) {
    return send_one(message, context, run, kind);
  }
  bool announce(std::uint64_t bytes, Context context);
  SendResult send_large(std::span<const std::byte> message, Context context);
  void check_unreserved(Context context) const;
  void count_message() {
    if (++messages_sent_ % kMessagesPerErrorPoll == 0) way_.poll_send_errors();
  }
  bool no_room();
  // A message is under way in pieces or reserved, or sending has failed.
  bool occupied(Context context) const {
    return pieces_[context].under_way() || reservation_.memory.data() != nullptr ||
           !end_.send_error.empty();
  }

  // --- receive side
  bool hand_out(Context context, Delivery& delivery);
  bool add_piece(Context context, const SlotOrder::Entry& entry, const std::byte* bytes,
                 Delivery& delivery);
  void check_whole(Context context);
  ReceiveResult nothing_waits(Context context);

  SlotEnd end_;
  Way way_;

  // --- send side
  alignas(64) std::array<Pieces, kContextCount> pieces_;
  Reservation reservation_;
  bool took_part_ = false;  // the last try_send did, of a message that it did not finish
  bool end_sent_ = false;
  std::uint64_t messages_sent_ = 0;

  // --- receive side
  alignas(64) std::array<Reassembly, kContextCount> large_;
  Counter reassembled_;
};

}  // namespace leat::detail
