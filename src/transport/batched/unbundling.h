// How a receiver of transport batched hands out a message of a bundle, to be compiled into its path
// of messages.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "transport/batched/receiver.h"

namespace leat::detail {

inline void BatchedReceiver::hand_out_bundled(Context context, Delivery& delivery) {
  Unbundling& from = unbundling_[context];
  std::span<const std::byte> message;
  if (!from.messages.next(message)) end_.nonsense("messages that are longer than their bundle");
  if (message.size() > end_.max_message_bytes()) [[unlikely]]
    end_.refuse_length(message.size());
  ++unbundled_;
  delivery.context = context;
  delivery.bytes = message.size();
  delivery.must_release = false;
  delivery.data = nullptr;
  if (message.size() <= Delivery::kSmallBytes) {
    // Senders leave room for that behind a short one.
    if (from.messages.at() + Delivery::kSmallBytes <= bundle_room_[context != 0]) [[likely]] {
      delivery.take_small(message.data());
    } else {
      std::copy(message.begin(), message.end(), delivery.small.begin());
    }
  } else if (from.stays) [[likely]] {
    delivery.data = message.data();
    delivery.must_release = true;
    delivery.ticket = std::uint64_t{from.slot} << 32;
    ++uses_[from.slot].held;
  } else {  // the next pull lands in the same place
    delivery.heap = std::make_unique_for_overwrite<std::byte[]>(message.size());
    std::copy(message.begin(), message.end(), delivery.heap.get());
    delivery.data = delivery.heap.get();
  }
  if (from.messages.empty()) bundle_handed_out(context);
}

}  // namespace leat::detail
