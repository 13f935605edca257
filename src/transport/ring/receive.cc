// The way of messages out of the rings.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "transport/parts/requests.h"
#include "transport/ring/ring.h"

namespace leat::detail {

ReceiveResult RingTransport::try_receive(Context context, Delivery& delivery) {
  ArrivalReceiver* const arrivals = short_arrivals_;
  Completion next;
  if (arrivals == nullptr || !arrivals->peek(next)) return receive_at_length(context, delivery);
  if (next.bytes > Delivery::kSmallBytes) return receive_in_place(context, delivery);
  if (!pass_small(next.immediate, next.bytes, next.payload, context, delivery)) [[unlikely]]
    return receive_at_length(context, delivery);
  arrivals->take();
  returns_.add_used();
  const RingReceiver& receiver = receivers_[context];
  if (returns_.due() ||
      returns_.owes(context, receiver.free_before(), receiver.units() / kReturnShare)) [[unlikely]]
    return settle(context);
  return ReceiveResult::kMessage;
}

ReceiveResult RingTransport::settle(Context context) {
  return_space(context);
  if (returns_.due()) returns_.replace(*queue_pair_);
  return ReceiveResult::kMessage;
}

ReceiveResult RingTransport::receive_in_place(Context context, Delivery& delivery) {
  Completion next;
  if (!short_arrivals_->peek(next) || !pass(next.immediate, next.bytes, context, delivery))
    return receive_at_length(context, delivery);
  short_arrivals_->take();
  took_one();
  return ReceiveResult::kMessage;
}

ReceiveResult RingTransport::receive_at_length(Context context, Delivery& delivery) {
  if (receivers_[context].waiting() && !receive_error_.is_protocol()) {
    const ReceiveResult result = hand_out(context, delivery);
    if (result != ReceiveResult::kNothing) return result;
  }
  while (receive_error_.empty()) {
    const std::size_t count = queue_pair_->poll_receives(polled_);
    if (count == 0) break;
    const Completion& first = polled_[0];
    if (count == 1 && !ended_ && first.status == CompletionStatus::kSuccess &&
        first.kind == CompletionKind::kImmediate &&
        (first.bytes <= Delivery::kSmallBytes
             ? pass_small(first.immediate, first.bytes, first.payload, context, delivery)
             : pass(first.immediate, first.bytes, context, delivery))) {
      return_space(context);
      took_one();
      return ReceiveResult::kMessage;
    }
    for (std::size_t i = 0; i < count; ++i) arrived(polled_[i]);
    if (returns_.due()) returns_.replace(*queue_pair_);
    if (!receivers_[context].waiting()) continue;
    const ReceiveResult result = hand_out(context, delivery);
    if (result != ReceiveResult::kNothing) return result;
  }
  large_[context].check();
  check_receiving();
  if (!ended_) return ReceiveResult::kNothing;
  large_[context].drop();  // its sender has given it up
  return ReceiveResult::kEnd;
}

inline void RingTransport::took_one() {
  returns_.add_used();
  if (returns_.due()) [[unlikely]]
    returns_.replace(*queue_pair_);
}

// After a look that found nothing.
void RingTransport::check_receiving() {
  receive_error_.check();
  if (returns_.refused()) [[unlikely]]
    returns_.retry(queue_pair_.get(), [&](Context context) { return_space(context); });
}

// Where a message with such an immediate lies.
inline std::byte* RingTransport::at(std::uint32_t immediate) const {
  return rings_ + std::size_t{decode_immediate(immediate).place} * kPlaceUnitBytes;
}

// Hands out a message as it comes, without queueing it: the usual case, one whole message of this
// context, and no other before it. False: it is not that simple. What it counted from the first
// unit of the ring is below the ring's size only in this ring: else it is above 2^28, or wraps.
inline bool RingTransport::pass_small(std::uint32_t immediate, std::size_t bytes,
                                      const std::byte* payload, Context context,
                                      Delivery& delivery) {
  static_assert(Delivery::kSmallBytes <= kPlaceUnitBytes);
  if (large_[context].active() || !receivers_[context].pass(immediate - first_[context], bytes))
    return false;
  delivery.take_small(payload != nullptr ? payload : at(immediate));
  delivery.bytes = bytes;
  delivery.context = context;
  return true;
}

// The same for one that stays in its place.
inline bool RingTransport::pass(std::uint32_t immediate, std::size_t bytes, Context context,
                                Delivery& delivery) {
  RingReceiver& receiver = receivers_[context];
  if (large_[context].active() || receiver.waiting()) return false;
  if (receiver.full()) [[unlikely]]
    make_room(receiver);
  if (!receiver.arrive(immediate - first_[context], bytes, false)) return false;
  static_cast<void>(receiver.hand_out(delivery.ticket));
  delivery.data = at(immediate);
  delivery.must_release = true;
  delivery.bytes = bytes;
  delivery.context = context;
  return true;
}

void RingTransport::arrived(const Completion& completion) {
  if (completion.status != CompletionStatus::kSuccess) {
    if (ended_) return;  // after its end the peer may go
    fail_receiving(ErrorCode::kPeerDied, failure("receiving", completion.status, *queue_pair_));
    return;
  }
  returns_.add_used();
  if (completion.kind != CompletionKind::kImmediate) nonsense("a message without immediate data");
  const auto [context, place] = decode_immediate(completion.immediate);
  if (ended_) nonsense("a message after its end");
  if (place == kEndPlace) {
    ended_ = true;
    short_arrivals_ = nullptr;
    return;
  }
  const Immediate immediate{context, place};
  if (immediate.has_number()) return arrived_by_number(immediate.number(), completion.bytes);
  RingReceiver& receiver = receivers_[context];
  const bool announces = place == kAnnouncePlace;
  if (announces && completion.bytes != sizeof(std::uint64_t)) nonsense("an odd announcement");
  const std::uint64_t unit =
      announces ? receiver.due(1) : place - layout_.first_unit(context);  // wraps if before it
  if (receiver.full()) make_room(receiver);
  if (!receiver.arrive(unit, completion.bytes, announces))
    nonsense("a message of " + std::to_string(completion.bytes) + " bytes at place " +
             std::to_string(place) + " of context " + std::to_string(context));
  // Where hand_out() looks for it.
  if (completion.payload != nullptr)
    std::memcpy(rings_ + (layout_.first_unit(context) + unit) * kPlaceUnitBytes, completion.payload,
                completion.bytes);
}

// What cannot be remembered is lost, and all that comes after it.
void RingTransport::make_room(RingReceiver& receiver) try {
  receiver.grow();
} catch (const std::bad_alloc&) {
  fail_receiving(ErrorCode::kResource, "out of memory");  // short enough to need none
  throw Error(ErrorCode::kResource, "out of memory for what has arrived", "Connect again.");
}

// The next waiting arrival of that context, or as much of a large message as has come.
ReceiveResult RingTransport::hand_out(Context context, Delivery& delivery) {
  RingReceiver& receiver = receivers_[context];
  Reassembly& large = large_[context];
  while (receiver.waiting()) {
    std::uint64_t ticket = 0;
    const RingReceiver::Arrival arrival = receiver.hand_out(ticket);
    const std::size_t offset = (layout_.first_unit(context) + arrival.unit) * kPlaceUnitBytes;
    const std::byte* memory = rings_ + offset;
    if (!arrival.announces && !large.active()) [[likely]] {
      delivery.context = context;
      delivery.ticket = ticket;
      delivery.bytes = arrival.bytes;
      delivery.data = memory;
      delivery.must_release = arrival.bytes > Delivery::kSmallBytes;
      if (!delivery.must_release) {
        // Copied, a cache line at most, so its place is free at once, however long it is kept.
        delivery.take_small(memory);
        receiver.release(ticket);
        return_space(context);
      }
      return ReceiveResult::kMessage;
    }
    if (arrival.announces) {
      std::uint64_t total = 0;
      std::memcpy(&total, memory, sizeof total);
      if (!large.announced(total, max_in_place_bytes(context), max_message_bytes()))
        nonsense("a message announced with " + std::to_string(total) + " bytes");
    } else if (!large.add({memory, arrival.bytes})) {
      nonsense("more bytes than it announced");
    }
    receiver.release(ticket);
    return_space(context);
    if (large.active() && large.complete()) {
      reassembled_.add(1);
      large.take(delivery);
      delivery.context = context;
      return ReceiveResult::kMessage;
    }
  }
  return ReceiveResult::kNothing;
}

Outlook RingTransport::outlook(Side side, Look look) const {
  using enum Outlook::Comes;
  if (side == Side::kSend) return {.comes = kSilently, .soon = pieces_[last_large_].took_part()};
  return {
      .comes = returns_.refused() ? kSilently : kWithEvent,
      .soon = look == Look::kThorough && std::ranges::any_of(receivers_, &RingReceiver::waiting)};
}

void RingTransport::release(Delivery& delivery) noexcept {
  receivers_[delivery.context].release(delivery.ticket);
  return_space(delivery.context);
}

void RingTransport::return_space(Context context) noexcept {
  const RingReceiver& receiver = receivers_[context];
  returns_.give_back(queue_pair_.get(), context, receiver.free_before(),
                     receiver.units() / kReturnShare);
}

void RingTransport::arrived_by_number(std::uint32_t number, std::size_t /*bytes*/) {
  nonsense("a planned message, number " + std::to_string(number));
}

void RingTransport::fail_receiving(ErrorCode code, const std::string& text) noexcept {
  short_arrivals_ = nullptr;
  receive_error_.set(code, text);
}

void RingTransport::nonsense(const std::string& what) {
  fail_receiving(ErrorCode::kProtocol, "the peer sent " + what + ", which leat never does (" +
                                           queue_pair_->describe() + ")");
  receive_error_.tell();
}

}  // namespace leat::detail
