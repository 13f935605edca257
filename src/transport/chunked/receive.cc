// The way of transfers from the peer.
#include <algorithm>
#include <cstring>

#include "transport/chunked/chunked.h"

namespace leat::detail {
namespace {

constexpr std::chrono::microseconds kWorthSpinning{50};

}  // namespace

ReceiveResult ChunkedTransport::try_receive(Context context, Delivery& delivery) {
  const auto mine = resumption_.turn(Side::kReceive);
  if (!mine) return ReceiveResult::kNothing;
  std::array<Completion, 16> completions;
  for (;;) {
    if (receivers_[context].waiting() && !receive_error_.is_protocol()) {
      const ReceiveResult result = hand_out(context, delivery);
      if (result != ReceiveResult::kNothing) return result;
    }
    QueuePair* const queue_pair = receive_error_.empty() ? resumption_.queue_pair() : nullptr;
    const std::size_t count = queue_pair == nullptr ? 0 : queue_pair->poll_receives(completions);
    if (count == 0) break;
    for (const Completion& completion : std::span(completions).first(count)) arrived(completion);
    if (resuming()) return ReceiveResult::kNothing;
    if (returns_.due()) returns_.replace(*queue_pair);
  }
  receive_error_.check();
  if (returns_.refused()) [[unlikely]]
    retry_credits();
  // Also after the peer's end, of which it may not know that it has arrived.
  resumption_.heed_peer(Side::kReceive);
  if (!ended_) return ReceiveResult::kNothing;
  large_[context].check();
  large_[context].drop();  // its sender has given it up
  return ReceiveResult::kEnd;
}

void ChunkedTransport::arrived(const Completion& completion) {
  if (!receive_error_.empty()) return;
  if (completion.status != CompletionStatus::kSuccess) {
    if (ended_) return;  // after its end the peer may go
    const std::string why = std::string("receiving failed: ") + to_string(completion.status);
    if (!resumption_.break_off(why))
      receive_error_.set(ErrorCode::kPeerDied, why + " (" + resumption_.describe() + ")");
    return;
  }
  take_arrival(completion);
}

void ChunkedTransport::take_arrival(const Completion& completion) {
  returns_.add_used();
  if (completion.kind != CompletionKind::kImmediate) nonsense("a message without immediate data");
  const auto [context, place] = decode_immediate(completion.immediate);
  if (ended_) nonsense("a message after its end");
  if (place == kEndPlace) {
    ended_ = true;
    return;
  }
  const std::uint64_t unit = place - layout_.first_unit(context);  // wraps if before it
  if (unit >= layout_.shape(context).units()) nonsense("a header outside of its context's regions");
  ChunkHeader header;  // a copy: the peer can write the original at any time
  std::memcpy(&header, region_->memory().data() + std::size_t{place} * kPlaceUnitBytes,
              sizeof header);
  if (header.total > max_message_bytes()) nonsense("a transfer above max_message_bytes");
  if (const char* why = receivers_[context].arrive(unit, header))
    nonsense("a part of a transfer " + std::string(why) + ", in context " +
             std::to_string(context));
}

// The next waiting transfer of that context, or as much of one in several parts as has come.
ReceiveResult ChunkedTransport::hand_out(Context context, Delivery& delivery) {
  PoolReceiver& receiver = receivers_[context];
  Reassembly& large = large_[context];
  while (receiver.waiting()) {
    std::uint64_t ticket = 0;
    const PoolReceiver::Arrival arrival = receiver.hand_out(ticket);
    const ChunkHeader& header = arrival.header;
    const std::uint64_t unit = layout_.first_unit(context) + arrival.unit;
    const std::byte* memory =
        region_->memory().data() + unit * kPlaceUnitBytes + sizeof(ChunkHeader);
    if (header.count == ChunkHeader::kTakenBack) {
      large.drop();
      receiver.release(ticket);
      return_space(context);
      continue;
    }
    delivery.context = context;
    if (header.count == 1) {
      check_digest({memory, header.length}, header.digest);
      delivery.bytes = header.length;
      delivery.ticket = ticket;
      delivery.data = memory;
      delivery.must_release = header.length > Delivery::kSmallBytes;
      if (!delivery.must_release) {
        // Copied, so its place is free at once, however long it is kept.
        std::memcpy(delivery.small.data(), memory, header.length);
        delivery.data = nullptr;
        receiver.release(ticket);
        return_space(context);
      }
      return ReceiveResult::kMessage;
    }
    if (header.sequence == 0) {
      try {
        large.begin(header.total);
      } catch (const Error& error) {
        fail_receiving(error.code(), error.what());
      }
    }
    if (!large.add({memory, header.length})) nonsense("more bytes than it announced");
    receiver.release(ticket);
    return_space(context);
    if (large.complete()) {
      large.take(delivery);
      check_digest({delivery.data, delivery.bytes}, header.digest);
      reassembled_.add(1);
      return ReceiveResult::kMessage;
    }
  }
  return ReceiveResult::kNothing;
}

void ChunkedTransport::check_digest(std::span<const std::byte> message, const ChunkDigest& digest) {
  if (!options_.verify) return;
  ChunkDigester digester;
  digester.add(message);
  if (digester.digest() != digest)
    fail_receiving(ErrorCode::kProtocol,
                   "a transfer of " + std::to_string(message.size()) +
                       " bytes arrived with another digest than it was sent with (" +
                       resumption_.describe() + ")");
}

Outlook ChunkedTransport::outlook(Side side, Look look) const {
  using enum Outlook::Comes;
  const auto mine = resumption_.turn(side);
  if (side == Side::kSend) {
    // Whose next chunk has its turn later need not spin for it.
    const bool soon = mine && took_part_ && window_.paced_until() <= Clock::now() + kWorthSpinning;
    return {.comes = kSilently, .soon = soon};
  }
  if (!mine) return {};  // the end of resuming gives an event
  return {
      .comes = returns_.refused() ? kSilently : kWithEvent,
      .soon = look == Look::kThorough && std::ranges::any_of(receivers_, &PoolReceiver::waiting)};
}

void ChunkedTransport::release(Delivery& delivery) noexcept {
  const auto mine = resumption_.wait_for_turn(Side::kReceive);
  receivers_[delivery.context].release(delivery.ticket);
  return_space(delivery.context);
}

void ChunkedTransport::return_space(Context context) noexcept {
  const PoolReceiver& receiver = receivers_[context];
  returns_.give_back(resumption_.queue_pair(), context, receiver.free_before(),
                     std::max<std::uint64_t>(receiver.untold_units(), 1));
}

void ChunkedTransport::retry_credits() noexcept {
  returns_.retry(resumption_.queue_pair(), [&](Context context) { return_space(context); });
}

void ChunkedTransport::nonsense(const std::string& what) {
  fail_receiving(ErrorCode::kProtocol, "the peer sent " + what + ", which leat never does (" +
                                           resumption_.describe() + ")");
}

void ChunkedTransport::fail_receiving(ErrorCode code, const std::string& what) {
  receive_error_.fail(code, what);
}

}  // namespace leat::detail
