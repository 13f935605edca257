// The send side: what has its number leaves as it was sealed.
#include <algorithm>

#include "leat/error.h"
#include "transport/parts/refusals.h"
#include "transport/sealed/sealed.h"

namespace leat::detail {

void SealedTransport::Outgoing::forget() noexcept {
  stage = Stage::kNone;
  abandoned = false;
  record = {};
  buffer.shrink();
}

SendResult SealedTransport::try_send(std::span<const std::byte> message, Context context) {
  check_unbroken();
  reservation_.check_send(context);
  return send(SealedKind::kMessage, message, context);
}

SendResult SealedTransport::send(SealedKind kind, std::span<const std::byte> message,
                                 Context context) {
  Outgoing& out = outgoing_[context];
  if (out.begun()) [[unlikely]] {
    check_same(message, context);
    return push(context) ? SendResult::kSent : SendResult::kUnderWay;
  }
  if (message.size() > max_message_bytes()) refuse_too_large(message.size(), max_message_bytes());
  const std::size_t bytes = message.size() + kSealTagBytes;
  if (!in_place_ && bytes <= inner_->max_in_place_bytes(context)) {
    // Room first: what finds none needs no number.
    const std::span<std::byte> place = inner_->try_reserve(bytes, context);
    if (place.data() == nullptr) return SendResult::kNoRoom;
    try {
      sealers_[context]->seal(kind, message, place);
    } catch (...) {
      inner_->abandon(context);
      throw;
    }
    return commit_place(place, kind, context) ? SendResult::kSent : SendResult::kUnderWay;
  }
  out.record = out.buffer.take(bytes);
  sealers_[context]->seal(kind, message, out.record);
  out.kind = kind;
  out.stage = Stage::kKept;
  return push(context) ? SendResult::kSent : SendResult::kUnderWay;
}

// False: it is kept, and push() goes on with it. Gives the place back when it throws.
bool SealedTransport::commit_place(std::span<std::byte> record, SealedKind kind,
                                   Context context) try {
  Outgoing& out = outgoing_[context];
  const SendResult result = inner_->try_commit(record.size());
  if (sent(result)) [[likely]]
    return true;
  out.kind = kind;
  if (result == SendResult::kUnderWay) {
    out.stage = Stage::kInPlace;
    out.record = record;
    in_place_ = true;
    return false;
  }
  // It has its number: it leaves as it is, from another place.
  const auto kept = out.buffer.take(record.size());
  std::ranges::copy(record, kept.begin());
  out.record = kept;
  out.stage = Stage::kKept;
  inner_->abandon(context);
  return false;
} catch (...) {
  inner_->abandon(context);
  throw;
}

// Goes on with what the context has begun. Returns true once that is sent.
bool SealedTransport::push(Context context) {
  Outgoing& out = outgoing_[context];
  const bool in_place = out.stage == Stage::kInPlace;
  const SendResult result =
      in_place ? inner_->try_commit(out.record.size()) : inner_->try_send(out.record, context);
  if (!sent(result)) return false;
  if (in_place) in_place_ = false;
  out.forget();
  return true;
}

// Its size must do, unless its caller has given it up since: callers are bound to go on with the
// same message, and to look at all of it at each try would cost as much as to seal it.
void SealedTransport::check_same(std::span<const std::byte> message, Context context) {
  Outgoing& out = outgoing_[context];
  if (out.kind == SealedKind::kMessage && message.size() + kSealTagBytes == out.record.size() &&
      (!out.abandoned || sealers_[context]->is_of(out.record, message))) {
    out.abandoned = false;
    return;
  }
  throw Error(ErrorCode::kInvalidArgument,
              "another message is to be sent first: it is sealed, has its place in the order and "
              "cannot be taken back",
              "Go on with that message, or connect again.");
}

void SealedTransport::check_unbroken() const {
  if (broken_.load(std::memory_order_relaxed)) [[unlikely]]
    throw Error(ErrorCode::kAuthentication, "what came from the peer was not what it had sealed",
                "Someone between the two sides has changed or removed messages. Connect again.");
}

std::span<std::byte> SealedTransport::try_reserve(std::size_t bytes, Context context) {
  check_unbroken();
  if (bytes > max_in_place_bytes(context))
    refuse_reservation(bytes, max_in_place_bytes(context), "Use send().");
  const Outgoing& out = outgoing_[context];
  reservation_.check_reserve(
      context, out.begun() && out.record.size() > inner_->max_in_place_bytes(context));
  // A commit that found no room, abandoned since: it has its place in the order.
  if (out.begun() && !push(context)) return {};
  // Our own memory: nothing is seen of it before it is sealed.
  reservation_.open(reservation_buffer_.take(std::max<std::size_t>(bytes, 1)).first(bytes),
                    context);
  return reservation_.memory();
}

SendResult SealedTransport::try_commit(std::size_t bytes) {
  check_unbroken();
  const SendResult result =
      send(SealedKind::kMessage, reservation_.check_commit(bytes), reservation_.context());
  if (sent(result)) reservation_.close();
  return result;
}

void SealedTransport::abandon(Context context) noexcept {
  reservation_.abandon(context);
  outgoing_[context].abandoned = outgoing_[context].begun();
}

// An end that anyone can send proves nothing: each flow ends with a record of its own.
bool SealedTransport::try_end() {
  check_unbroken();
  for (; ends_sent_ < kContextCount; ++ends_sent_) {
    const Context context = ends_sent_;
    const Outgoing& out = outgoing_[context];
    if (out.begun()) {
      const bool is_end = out.kind == SealedKind::kEnd;
      if (!push(context)) return false;
      if (is_end) continue;
    }
    if (!sent(send(SealedKind::kEnd, {}, context))) return false;
  }
  return inner_->try_end();
}

bool SealedTransport::try_flush() {
  check_unbroken();
  return inner_->try_flush();
}

}  // namespace leat::detail
