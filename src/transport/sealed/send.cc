// The send side: what has its number leaves as it was sealed.
#include "leat/error.h"
#include "transport/parts/refusals.h"
#include "transport/sealed/sealed.h"

namespace leat::detail {

SendResult SealedTransport::try_send(std::span<const std::byte> message, Context context) {
  check_unbroken();
  records_.check_send(context);
  return send(SealedKind::kMessage, message, context);
}

SendResult SealedTransport::send(SealedKind kind, std::span<const std::byte> message,
                                 Context context) {
  if (records_.of(context).begun()) [[unlikely]] {
    check_same(message, context);
    return records_.push(context);
  }
  if (message.size() > max_message_bytes()) refuse_too_large(message.size(), max_message_bytes());
  return records_.send(message.size(), kind, context, [&](std::span<std::byte> record) {
    sealers_[context]->seal(kind, message, record);
  });
}

// Its size must do, unless its caller has given it up since: callers are bound to go on with the
// same message, and to look at all of it at each try would cost as much as to seal it.
void SealedTransport::check_same(std::span<const std::byte> message, Context context) {
  auto& out = records_.of(context);
  if (out.about == SealedKind::kMessage && message.size() + kSealTagBytes == out.record.size() &&
      (!out.abandoned || sealers_[context]->is_of(out.record, message))) {
    out.abandoned = false;
    return;
  }
  refuse_another_message("sealed");
}

void SealedTransport::check_unbroken() const {
  if (broken_.load(std::memory_order_relaxed)) [[unlikely]]
    throw Error(ErrorCode::kAuthentication, "what came from the peer was not what it had sealed",
                "Someone between the two sides has changed or removed messages. Connect again.");
}

std::span<std::byte> SealedTransport::try_reserve(std::size_t bytes, Context context) {
  check_unbroken();
  return records_.try_reserve(bytes, context);
}

SendResult SealedTransport::try_commit(std::size_t bytes) {
  check_unbroken();
  return records_.try_commit(bytes, [&](std::span<const std::byte> message, Context context) {
    return send(SealedKind::kMessage, message, context);
  });
}

void SealedTransport::abandon(Context context) noexcept { records_.abandon(context); }

bool SealedTransport::try_end() {
  check_unbroken();
  return records_.try_end(
      [](SealedKind kind) { return kind == SealedKind::kEnd; },
      [&](Context context) { return sent(send(SealedKind::kEnd, {}, context)); });
}

bool SealedTransport::try_flush() {
  check_unbroken();
  return inner_->try_flush();
}

}  // namespace leat::detail
