// The send side of the transports with slots, to be compiled together with their ways: the file of
// a way includes this and receiving.h, and instantiates its SlotTransport.
#pragma once

#include <algorithm>
#include <cstring>

#include "transport/parts/refusals.h"
#include "transport/slots/slot_transport.h"

namespace leat::detail {

template <typename Way>
SendResult SlotTransport<Way>::try_send(std::span<const std::byte> message, Context context) {
  if constexpr (Way::kBundles) {
    if (way_.shares_slot(message.size(), context) && !occupied(context)) [[likely]] {
      if (!way_.append(message, context)) {
        way_.poll_send_errors();
        return SendResult::kNoRoom;
      }
      count_message();
      return SendResult::kSent;
    }
  }
  if (message.size() > max_in_place_bytes(context) || pieces_[context].under_way()) [[unlikely]]
    return send_large(message, context);
  check_unreserved(context);
  const auto run = way_.find_run(
      context, static_cast<unsigned>(end_.layout().slots_of(context, message.size())));
  return whole_or_not(run.count != 0 ? send_one(message, context, run, SlotKind::kMessage)
                                     : no_room());
}

template <typename Way>
inline bool SlotTransport<Way>::send_one(std::span<const std::byte> message, Context context,
                                         const SlotRun& run, SlotKind kind) {
  end_.send_error.check();
  if (!message.empty())
    std::memcpy(end_.outgoing_message(context, run), message.data(), message.size());
  if (!way_.post(context, run, kind, message.size())) [[unlikely]] {
    way_.poll_send_errors();
    return false;
  }
  count_message();
  return true;
}

template <typename Way>
bool SlotTransport<Way>::no_room() {
  end_.credit_waits.add(1);
  way_.poll_send_errors();
  return false;
}

template <typename Way>
void SlotTransport<Way>::check_unreserved(Context context) const {
  if (reservation_.memory.data() != nullptr && reservation_.context == context) [[unlikely]]
    refuse_while_reserved(context);
}

// The size of a large message, or that it is taken back.
template <typename Way>
bool SlotTransport<Way>::announce(std::uint64_t bytes, Context context) {
  const auto run = find_room(context, 1);
  if (run.count == 0) return no_room();
  return send_piece(std::as_bytes(std::span(&bytes, 1)), context, run, SlotKind::kLargeStart);
}

template <typename Way>
SendResult SlotTransport<Way>::send_large(std::span<const std::byte> message, Context context) {
  Pieces& pieces = pieces_[context];
  const auto announce_one = [&](std::uint64_t bytes) { return announce(bytes, context); };
  took_part_ = false;
  if (!pieces.try_take_back(announce_one)) return SendResult::kUnderWay;
  if (!pieces.under_way()) {
    if (message.size() <= max_in_place_bytes(context)) return try_send(message, context);
    if (message.size() > max_message_bytes()) refuse_too_large(message.size(), max_message_bytes());
    check_unreserved(context);
  }
  // As much as there is a run for.
  return pieces.try_send(message, announce_one, [&](std::span<const std::byte> rest) {
    const std::size_t most = std::min(rest.size(), max_in_place_bytes(context));
    auto count = static_cast<unsigned>(end_.layout().slots_of(context, most));
    auto run = find_room(context, count);
    while (run.count == 0 && count > 1) run = find_room(context, count /= 2);
    if (run.count == 0) {
      no_room();
      return std::size_t{0};
    }
    const auto piece = rest.first(std::min(most, end_.layout().run_bytes(context, count)));
    if (!send_piece(piece, context, run, SlotKind::kMessage)) return std::size_t{0};
    took_part_ = true;
    return piece.size();
  });
}

template <typename Way>
std::span<std::byte> SlotTransport<Way>::try_reserve(std::size_t bytes, Context context) {
  if (bytes > max_in_place_bytes(context))
    refuse_reservation(bytes, max_in_place_bytes(context),
                       "Raise slot_bytes or slot_count on both sides, or use send().");
  const auto announce_one = [&](std::uint64_t total) { return announce(total, context); };
  if (!pieces_[context].try_take_back(announce_one)) return {};
  if (pieces_[context].under_way() || reservation_.memory.data() != nullptr)
    refuse_while_unfinished(context);
  const auto run =
      find_room(context, static_cast<unsigned>(end_.layout().slots_of(context, bytes)));
  if (run.count == 0) {
    no_room();
    return {};
  }
  reservation_ = {{end_.outgoing_message(context, run), bytes}, context, run};
  return reservation_.memory;
}

template <typename Way>
SendResult SlotTransport<Way>::try_commit(std::size_t bytes) {
  if (reservation_.memory.data() == nullptr || bytes > reservation_.memory.size())
    refuse_commit(bytes);
  // Fewer bytes may need fewer slots; the rest of the run was never taken.
  const SlotRun run{reservation_.run.first,
                    static_cast<unsigned>(end_.layout().slots_of(reservation_.context, bytes))};
  if (!way_.post(reservation_.context, run, SlotKind::kMessage, bytes)) {
    way_.poll_send_errors();
    return SendResult::kNoRoom;
  }
  ++messages_sent_;
  reservation_ = {};
  return SendResult::kSent;
}

template <typename Way>
void SlotTransport<Way>::abandon(Context context) noexcept {
  if (reservation_.context == context) reservation_ = {};
  pieces_[context].abandon();
}

template <typename Way>
bool SlotTransport<Way>::try_end() {
  if (end_sent_) return true;
  if (!way_.post_end()) {
    way_.poll_send_errors();
    return false;
  }
  ++messages_sent_;
  return end_sent_ = true;
}

template <typename Way>
bool SlotTransport<Way>::try_flush() {
  const auto post = [&](const SendRequest& request) {
    return way_.prepare_flush() && way_.post_sends({&request, 1}) != 0;
  };
  return end_.flush.attempt(messages_sent_, end_.peer(), post, [&] { way_.poll_send_errors(); });
}

}  // namespace leat::detail
