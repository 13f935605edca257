// The way of messages into the rings; receive.cc has the way out, setup.cc makes and starts the
// transport.
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

// A message that fits into an entry goes in it, and nowhere else.
SendResult RingTransport::try_send(std::span<const std::byte> message, Context context) {
  if (message.size() > CompletionEntry::kPayloadBytes) return send_in_place(message, context);
  if (!may_send_shortly()) return send_at_length(message, context);
  RingSender& sender = senders_[context];
  const auto place = sender.place_of_one();
  if (!place) return send_at_length(message, context);
  send_shortly(message, sender, *place, first_[context] + static_cast<std::uint32_t>(place->unit));
  return SendResult::kSent;
}

SendResult RingTransport::send_in_place(std::span<const std::byte> message, Context context) {
  if (message.size() >= too_long_for_short_way_ || !may_send_shortly())
    return send_at_length(message, context);
  RingSender& sender = senders_[context];
  const auto place = sender.place(units_of(message.size()));
  if (!place) return send_at_length(message, context);
  const std::uint32_t immediate = first_[context] + static_cast<std::uint32_t>(place->unit);
  copy_bytes(peer_memory_ + decode_immediate(immediate).place * kPlaceUnitBytes, message.data(),
             message.size());
  send_shortly(message, sender, *place, immediate);
  return SendResult::kSent;
}

// By stores of ours, where nothing is in the way. Else a message goes the long way, which tells
// what is.
inline bool RingTransport::may_send_shortly() const {
  return credits_.sent() < short_until_ && !arrivals_->peer_closed();
}

inline void RingTransport::send_shortly(std::span<const std::byte> message, RingSender& sender,
                                        const RingSender::Place& place, std::uint32_t immediate) {
  ArrivalSender& arrivals = arrivals_->sender;
  arrivals.publish(message.data(), message.size(), immediate);
  sender.take(place);
  credits_.add_sent();
  inline_sends_.add(1);
  arrivals.announce();
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

// A place in the ring and a receive at the peer. Counts, and looks for trouble, if there is none.
bool RingTransport::find_place(std::size_t bytes, Context context, RingSender::Place& place) {
  const auto found = credits_.find_place(senders_[context], context, units_of(bytes),
                                         [&](const char* why) { fail_sending(why); });
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
  const std::uint64_t taken = credits_.receives_word([&](const char* why) { fail_sending(why); });
  if (!credits_.take(taken)) fail_sending("took more messages than were sent");
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
