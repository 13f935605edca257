// What each message passes in the transports with slots, to be compiled into each of them.
#pragma once

#include <cstring>
#include <utility>

#include "leat/error.h"
#include "transport/slots/slot_transport.h"

namespace leat::detail {

template <typename Self>
SendResult SlotTransport::send_by(Self& self, std::span<const std::byte> message, Context context) {
  const SlotLayout& layout = self.layout_;
  if (message.size() > self.max_in_place_bytes(context) || self.pieces_[context].under_way())
      [[unlikely]]
    return self.send_large(message, context);
  self.check_unreserved(context);
  const auto run =
      self.find_run(context, static_cast<unsigned>(layout.slots_of(context, message.size())));
  return whole_or_not(run ? send_one(self, message, context, *run, SlotKind::kMessage)
                          : self.no_room());
}

template <typename Self>
bool SlotTransport::send_one(Self& self, std::span<const std::byte> message, Context context,
                             const SlotRun& run, SlotKind kind) {
  self.send_error_.check();
  if (!message.empty())
    std::memcpy(self.outgoing(context, run) + self.layout_.header_bytes(), message.data(),
                message.size());
  if (!self.post(context, run, kind, message.size())) [[unlikely]] {
    self.poll_send_errors();
    return false;
  }
  if (++self.messages_sent_ % kMessagesPerErrorPoll == 0) self.poll_send_errors();
  return true;
}

template <typename Self>
ReceiveResult SlotTransport::receive_by(Self& self, Context context, Delivery& delivery) {
  do {
    while (self.waiting(context))
      if (hand_out(self, context, delivery)) return ReceiveResult::kMessage;
  } while (self.receive_error_.empty() && self.look());
  return self.nothing_waits(context);
}

// The next of that context, or as much of a large message as has come. False: not a whole one.
template <typename Self>
bool SlotTransport::hand_out(Self& self, Context context, Delivery& delivery) {
  if (self.receive_error_.is_protocol()) [[unlikely]]
    self.receive_error_.check();
  if constexpr (Self::kBundles) {
    if (self.hand_out_bundled(context, delivery)) return true;
  }
  const SlotOrder::Entry entry = self.take(context);
  const std::byte* rode_along = std::exchange(self.rode_along_, nullptr);
  const std::byte* bytes =
      self.slots() + self.layout_.offset(context, entry.run.first) + self.layout_.header_bytes();
  if (entry.kind != SlotKind::kMessage || self.large_[context].active()) [[unlikely]] {
    if constexpr (Self::kBundles) {
      if (entry.kind == SlotKind::kBundle && !self.large_[context].active()) {
        self.begin_bundle(context, entry);
        return self.hand_out_bundled(context, delivery);
      }
    }
    return self.add_piece(context, entry, bytes, delivery);
  }
  if (entry.bytes > self.max_in_place_bytes(context)) [[unlikely]]
    self.refuse_length(entry.bytes);
  delivery.context = context;
  delivery.bytes = entry.bytes;
  delivery.must_release = entry.bytes > Delivery::kSmallBytes;
  if (delivery.must_release) {
    delivery.data = bytes;
    delivery.ticket = std::uint64_t{entry.run.first} << 32 | entry.run.count;
  } else {
    // Copied, so its slot is free at once, however long it is kept.
    if (entry.bytes != 0)
      std::memcpy(delivery.small.data(), rode_along != nullptr ? rode_along : bytes,
                  Delivery::kSmallBytes);
    delivery.data = nullptr;
    self.give_back(context, entry.run);
  }
  return true;
}

}  // namespace leat::detail
