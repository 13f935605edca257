// The receive side of the transports with slots; as sending.h.
#pragma once

#include <cstring>
#include <string>

#include "transport/slots/slot_transport.h"

namespace leat::detail {

template <typename Way>
ReceiveResult SlotTransport<Way>::try_receive(Context context, Delivery& delivery) {
  do {
    while (way_.waiting(context))
      if (hand_out(context, delivery)) return ReceiveResult::kMessage;
  } while (end_.receive_error.empty() && way_.look());
  return nothing_waits(context);
}

// The next message of that context, or as much of a large one as has come. False: not a whole one.
template <typename Way>
bool SlotTransport<Way>::hand_out(Context context, Delivery& delivery) {
  if (end_.receive_error.is_protocol()) [[unlikely]]
    end_.receive_error.check();
  if constexpr (Way::kBundles) {
    if (way_.begins_open_bundle(context)) {
      check_whole(context);
      way_.begin_open_bundle(context);
    }
    if (way_.in_bundle(context)) {
      way_.hand_out_bundled(context, delivery);
      return true;
    }
  }
  const SlotOrder::Entry entry = way_.take(context);
  const std::byte* rode_along = way_.rode_along();
  const std::byte* bytes =
      end_.slots() + end_.layout().offset(context, entry.run.first) + end_.layout().header_bytes();
  if (entry.kind != SlotKind::kMessage || large_[context].active()) [[unlikely]] {
    if constexpr (Way::kBundles) {
      if (entry.kind == SlotKind::kBundle && !large_[context].active()) {
        way_.begin_bundle(context, entry);
        return false;  // the caller comes again
      }
    }
    return add_piece(context, entry, bytes, delivery);
  }
  if (entry.bytes > max_in_place_bytes(context)) [[unlikely]]
    end_.refuse_length(entry.bytes);
  delivery.context = context;
  delivery.bytes = entry.bytes;
  delivery.must_release = entry.bytes > Delivery::kSmallBytes;
  if (delivery.must_release) {
    delivery.data = bytes;
    delivery.ticket = std::uint64_t{entry.run.first} << 32 | entry.run.count;
  } else {
    // Copied, so its slot is free at once, however long it is kept.
    delivery.data = nullptr;
    if (entry.bytes != 0) delivery.take_small(rode_along != nullptr ? rode_along : bytes);
    way_.give_back(context, entry.run);
  }
  return true;
}

// A piece of a large message, or what announces one.
template <typename Way>
bool SlotTransport<Way>::add_piece(Context context, const SlotOrder::Entry& entry,
                                   const std::byte* bytes, Delivery& delivery) {
  Reassembly& large = large_[context];
  large.check();
  if (entry.kind == SlotKind::kLargeStart) {
    std::uint64_t total = 0;
    if (entry.bytes != sizeof total) end_.nonsense("an odd announcement");
    std::memcpy(&total, bytes, sizeof total);
    if (!large.announced(total, max_in_place_bytes(context), max_message_bytes()))
      end_.nonsense("a message announced with " + std::to_string(total) + " bytes");
  } else if (entry.kind == SlotKind::kBundle) {
    check_whole(context);
  } else if (entry.kind == SlotKind::kMessage && !large.add({bytes, entry.bytes})) {
    end_.nonsense("more bytes than it announced");
  }
  way_.give_back(context, entry.run);
  if (!large.active() || !large.complete()) return false;
  reassembled_.add(1);
  large.take(delivery);
  delivery.context = context;
  return true;
}

// Throws if that context is in the middle of a message in pieces.
template <typename Way>
void SlotTransport<Way>::check_whole(Context context) {
  large_[context].check();
  if (large_[context].active()) end_.nonsense("other messages within a large one");
}

template <typename Way>
ReceiveResult SlotTransport<Way>::nothing_waits(Context context) {
  large_[context].check();
  if (way_.ended(context)) {
    large_[context].drop();  // its sender has given it up
    return ReceiveResult::kEnd;
  }
  end_.receive_error.check();
  return ReceiveResult::kNothing;
}

template <typename Way>
void SlotTransport<Way>::release(Delivery& delivery) noexcept {
  const auto count = static_cast<unsigned>(delivery.ticket);
  if constexpr (Way::kBundles) {
    if (count == 0) return way_.release_bundled(delivery);
  }
  way_.give_back(delivery.context, {static_cast<unsigned>(delivery.ticket >> 32), count});
}

}  // namespace leat::detail
