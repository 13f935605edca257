// The way of messages through the rings; setup.cc makes and starts the transport.
#include "transport/ring/ring.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "transport/parts/refusals.h"
#include "transport/parts/requests.h"

namespace leat::detail {
namespace {

constexpr std::uint64_t kReadId = 2;
// Look for failed sends at every so many messages; blocked senders look at each try.
constexpr std::uint64_t kMessagesPerErrorPoll = 64;

}  // namespace

// --- send side

SendResult RingTransport::try_send(std::span<const std::byte> message, Context context) {
  if (message.size() < too_long_for_short_way_ && send_shortly(message, context))
    return SendResult::kSent;
  return send_at_length(message, context);
}

SendResult RingTransport::send_at_length(std::span<const std::byte> message, Context context) {
  if (message.size() > max_in_place_bytes(context) || pieces_[context].under_way())
    return send_large(message, context);
  reservation_.check_send(context);
  RingSender::Place place;
  if (!find_place(message.size(), context, place) || !post(message, context, place, false))
    return SendResult::kNoRoom;
  if (arrivals_ != nullptr) short_until_ = short_way_ends();
  return SendResult::kSent;
}

std::uint64_t RingTransport::short_way_ends() const {
  const std::uint64_t sent = credits_.sent();
  if (arrivals_->ended() || reservation_.is_open() ||
      std::ranges::any_of(pieces_, &Pieces::under_way))
    return sent;
  const std::uint64_t before_error_poll = kMessagesPerErrorPoll - 1 - sent % kMessagesPerErrorPoll;
  return sent + std::min({credits_.receives(), arrivals_->sender.receives(), before_error_poll});
}

// A small message where nothing is in its way, by stores of ours. False: it goes the long way,
// which tells what was in the way.
inline bool RingTransport::send_shortly(std::span<const std::byte> message, Context context) {
  if (credits_.sent() >= short_until_ || arrivals_->peer_closed()) return false;
  RingSender& sender = senders_[context];
  const auto place = sender.place(units_of(message.size()));
  if (!place) return false;
  const std::uint32_t immediate = first_[context] + static_cast<std::uint32_t>(place->unit);
  copy_bytes(peer_memory_ + decode_immediate(immediate).place * kPlaceUnitBytes, message.data(),
             message.size());
  arrivals_->sender.publish(message.data(), message.size(), immediate);
  sender.take(*place);
  credits_.add_sent();
  inline_sends_.add(1);
  arrivals_->sender.announce();
  return true;
}

// A place in the ring and a receive at the peer. Counts, and looks for trouble, if there is none.
bool RingTransport::find_place(std::size_t bytes, Context context, RingSender::Place& place) {
  const auto found = credits_.find_place(senders_[context], context, units_of(bytes), [&] {
    fail_sending("gave back ring space that it never had");
  });
  if (!found) [[unlikely]] {
    credit_waits_.add(1);
    poll_send_errors();
    return false;
  }
  if (!find_credit()) return false;
  place = *found;
  return true;
}

bool RingTransport::look_for_credit() {
  if (!credits_.take(credits_.receives_word())) fail_sending("took more messages than were sent");
  if (credits_.has_receive()) return true;
  credit_waits_.add(1);
  poll_send_errors();
  return false;
}

bool RingTransport::post(std::span<const std::byte> message, Context context,
                         const RingSender::Place& place, bool announces) {
  SendRequest request;
  request.opcode = Opcode::kWriteWithImmediate;
  request.signaled = false;
  request.bytes = message.size();
  if (message.size() <= limits_.max_inline_bytes) {
    request.inlined = true;
    request.local = const_cast<std::byte*>(message.data());
  } else {
    const auto staged = staging(context, place, message.size());
    if (staged.data() != message.data()) std::memcpy(staged.data(), message.data(), message.size());
    request.local = staged.data();
    request.local_key = staging_->local_key();
  }
  const std::uint64_t unit = layout_.first_unit(context) + place.unit;
  request.remote_address = peer_region_.address + unit * kPlaceUnitBytes;
  request.remote_key = peer_region_.key;
  request.immediate =
      encode({context, announces ? kAnnouncePlace : static_cast<std::uint32_t>(unit)});
  if (!post_request(request)) return false;
  senders_[context].take(place);
  if (request.inlined) inline_sends_.add(1);
  return true;
}

bool RingTransport::post_request(const SendRequest& request) {
  send_error_.check();
  if (queue_pair_->post_send({&request, 1}) == 0) [[unlikely]] {
    poll_send_errors();
    return false;
  }
  credits_.add_sent();
  if (credits_.sent() % kMessagesPerErrorPoll == 0) poll_send_errors();
  return true;
}

// Sends the size of a large message, or kTakenBack in its place: to the ring a message of its own,
// as each piece is.
bool RingTransport::announce(std::uint64_t bytes, Context context) {
  RingSender::Place place;
  return find_place(sizeof bytes, context, place) &&
         post(std::as_bytes(std::span(&bytes, 1)), context, place, true);
}

SendResult RingTransport::send_large(std::span<const std::byte> message, Context context) {
  short_until_ = 0;
  Pieces& pieces = pieces_[context];
  const auto announce_one = [&](std::uint64_t bytes) { return announce(bytes, context); };
  last_large_ = context;
  if (!pieces.try_take_back(announce_one)) return SendResult::kUnderWay;
  const std::size_t piece_bytes = max_in_place_bytes(context);
  if (!pieces.under_way()) {
    if (message.size() <= piece_bytes) return try_send(message, context);
    if (message.size() > max_message_bytes()) refuse_too_large(message.size(), max_message_bytes());
    reservation_.check_send(context);
  }
  return pieces.try_send(message, announce_one, [&](std::span<const std::byte> rest) {
    const auto piece = rest.first(std::min(piece_bytes, rest.size()));
    RingSender::Place place;
    return find_place(piece.size(), context, place) && post(piece, context, place, false)
               ? piece.size()
               : 0;
  });
}

std::span<std::byte> RingTransport::try_reserve(std::size_t bytes, Context context) {
  if (bytes > max_in_place_bytes(context))
    refuse_reservation(bytes, max_in_place_bytes(context),
                       "Raise ring_bytes on both sides, or use send().");
  const auto announce_one = [&](std::uint64_t total) { return announce(total, context); };
  short_until_ = 0;
  if (!pieces_[context].try_take_back(announce_one)) return {};
  reservation_.check_reserve(context, pieces_[context].under_way());
  RingSender::Place place;
  if (!find_place(bytes, context, place)) return {};
  const std::size_t offset = (layout_.first_unit(context) + place.unit) * kPlaceUnitBytes;
  const bool direct = peer_memory_ != nullptr;
  // A device without staging stores into the peer's memory, which has gone before start() then.
  if (!direct && staging_ == nullptr)
    throw Error(ErrorCode::kPeerDied, "the peer's memory has gone (" + describe() + ")");
  const auto memory =
      direct ? std::span(peer_memory_ + offset, bytes) : staging(context, place, bytes);
  reservation_.open(memory, context, {place, direct});
  return memory;
}

SendResult RingTransport::try_commit(std::size_t bytes) {
  const auto message = reservation_.check_commit(bytes);
  const Context context = reservation_.context();
  // Fewer bytes may need fewer units; they start at the same place unless the longer message had to
  // skip the end of the lap, so place it as it was placed.
  auto [place, in_peer_memory] = reservation_.place();
  place.end -= units_of(reservation_.memory().size()) - units_of(bytes);
  const auto again = senders_[context].place(units_of(bytes));
  if (again && again->unit != place.unit) {
    // It now fits before the end, where the receiver will look for it: move it there.
    const std::size_t from = (layout_.first_unit(context) + again->unit) * kPlaceUnitBytes;
    std::byte* target = in_peer_memory ? peer_memory_ + from : staging_->memory().data() + from;
    std::memmove(target, message.data(), bytes);
    reservation_.open({target, bytes}, context, {*again, in_peer_memory});
    return try_commit(bytes);
  }
  if (!post(message, context, place, false)) return SendResult::kNoRoom;
  reservation_.close();
  return SendResult::kSent;
}

void RingTransport::abandon(Context context) noexcept {
  reservation_.abandon(context);
  pieces_[context].abandon();
}

bool RingTransport::try_end() {
  if (end_sent_) return true;
  if (!find_credit()) return false;
  end_sent_ = post_request(bare_immediate(encode({0, kEndPlace}), peer_region_));
  return end_sent_;
}

bool RingTransport::try_flush() {
  const auto post = [&](const SendRequest& one) { return queue_pair_->post_send({&one, 1}) != 0; };
  return flush_.attempt(credits_.sent(), peer_region_, post, [&] { poll_send_errors(); });
}

bool RingTransport::try_read(const RemoteRegion& from, const MemoryRegion& to) {
  if (!try_finish_read()) return false;
  SendRequest request;
  request.id = kReadId;
  request.opcode = Opcode::kRead;
  request.local = to.memory().data();
  request.bytes = from.bytes;
  request.local_key = to.local_key();
  request.remote_address = from.address;
  request.remote_key = from.key;
  read_posted_ = queue_pair_->post_send({&request, 1}) != 0;
  return read_posted_;
}

bool RingTransport::try_finish_read() {
  poll_send_errors();
  return !read_posted_;
}

void RingTransport::poll_send_errors() {
  short_until_ = 0;
  const auto poll = [&](std::span<Completion> all) { return queue_pair_->poll_sends(all); };
  look_at_sends(*queue_pair_, send_error_, poll, [&](std::uint64_t id) {
    if (id == Flush::kId) flush_.completed();
    if (id == kReadId) read_posted_ = false;
  });
}

void RingTransport::fail_sending(const std::string& what) {
  short_until_ = 0;
  send_error_.fail(ErrorCode::kProtocol, "the peer " + what + ", which leat never does (" +
                                             queue_pair_->describe() + ")");
}

std::span<std::byte> RingTransport::staging(Context context, const RingSender::Place& place,
                                            std::size_t bytes) {
  const std::size_t offset = (layout_.first_unit(context) + place.unit) * kPlaceUnitBytes;
  return staging_->memory().subspan(offset, bytes);
}

// --- receive side

ReceiveResult RingTransport::try_receive(Context context, Delivery& delivery) {
  if (short_arrivals_ != nullptr && receive_shortly(context, delivery))
    return ReceiveResult::kMessage;
  return receive_at_length(context, delivery);
}

ReceiveResult RingTransport::receive_at_length(Context context, Delivery& delivery) {
  if (receivers_[context].waiting() && !receive_error_.is_protocol()) {
    const ReceiveResult result = hand_out(context, delivery, nullptr);
    if (result != ReceiveResult::kNothing) return result;
  }
  while (receive_error_.empty()) {
    const std::size_t count = queue_pair_->poll_receives(polled_);
    if (count == 0) break;
    if (count == 1 && !ended_ && polled_[0].status == CompletionStatus::kSuccess &&
        polled_[0].kind == CompletionKind::kImmediate && pass(polled_[0], context, delivery)) {
      took_one();
      return ReceiveResult::kMessage;
    }
    for (std::size_t i = 0; i < count; ++i) arrived(polled_[i]);
    if (returns_.due()) returns_.replace(*queue_pair_);
    if (!receivers_[context].waiting()) continue;
    // A single arrival is this context's: its payload, if it rode along, is still there.
    const ReceiveResult result =
        hand_out(context, delivery, count == 1 ? polled_[0].payload : nullptr);
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

// The next arrival, if it can be passed on at once. False: the long way, which polls.
inline bool RingTransport::receive_shortly(Context context, Delivery& delivery) {
  ArrivalReceiver& arrivals = *short_arrivals_;
  Completion completion;
  if (!arrivals.peek(completion) || !pass(completion, context, delivery)) return false;
  arrivals.take();
  took_one();
  return true;
}

// Hands out a message as it comes, without queueing it: the usual case, one whole message of this
// context, and no other before it. False: it is not that simple.
inline bool RingTransport::pass(const Completion& completion, Context context, Delivery& delivery) {
  static_assert(Delivery::kSmallBytes <= kPlaceUnitBytes);
  if (large_[context].active()) return false;
  RingReceiver& receiver = receivers_[context];
  // Below the ring's size only in this ring: else it is above 2^28, or wraps.
  const std::uint32_t unit = completion.immediate - first_[context];
  const std::byte* memory =
      rings_ + decode_immediate(completion.immediate).place * kPlaceUnitBytes;
  if (completion.bytes <= Delivery::kSmallBytes) {
    if (!receiver.pass(unit, completion.bytes)) return false;
    delivery.take_small(completion.payload != nullptr ? completion.payload : memory);
    return_space(context);
  } else {
    if (receiver.waiting()) return false;
    if (receiver.full()) [[unlikely]]
      make_room(receiver);
    if (!receiver.arrive(unit, completion.bytes, false)) return false;
    static_cast<void>(receiver.hand_out(delivery.ticket));
    delivery.data = memory;
    delivery.must_release = true;
  }
  delivery.bytes = completion.bytes;
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
}

// What cannot be remembered is lost, and all that comes after it.
void RingTransport::make_room(RingReceiver& receiver) try {
  receiver.grow();
} catch (const std::bad_alloc&) {
  fail_receiving(ErrorCode::kResource, "out of memory");  // short enough to need none
  throw Error(ErrorCode::kResource, "out of memory for what has arrived", "Connect again.");
}

// The next waiting arrival of that context, or as much of a large message as has come.
ReceiveResult RingTransport::hand_out(Context context, Delivery& delivery,
                                      const std::byte* payload) {
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
        delivery.take_small(payload != nullptr ? payload : memory);
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

// --- both

std::string RingTransport::describe() const { return "ring on " + queue_pair_->describe(); }

void RingTransport::add_stats(Stats& stats) const {
  stats.inline_sends += inline_sends_.get();
  stats.credit_waits += credit_waits_.get();
  stats.credit_returns += returns_.writes();
  stats.reassembled_messages += reassembled_.get();
  stats.rnr_retries += queue_pair_->rnr_retries();
}

}  // namespace leat::detail
