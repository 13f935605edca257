// The send side of decorators, which send a record for each message: what has its number leaves as
// it was made.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/settings.h"
#include "transport/parts/kept_buffers.h"
#include "transport/parts/reservation.h"
#include "transport/transport.h"

namespace leat::detail {

// Settings of the transport underneath, for messages of at most `most` bytes.
Settings settings_of_records(const Settings& settings, std::size_t most, std::size_t overhead);
// What a decorator is whose records are `overhead` bytes longer than their messages, over a
// transport that is `inner`. Throws kProtocol if not even an empty record fits.
Facts facts_of_records(const Facts& inner, std::size_t overhead);
// `how`: "sealed". Throws kInvalidArgument.
[[noreturn]] void refuse_another_message(const char* how);

// A record's number must not serve twice, and its receiver waits for it: a message that is under
// way cannot be taken back. `About`: what the decorator must know of a record besides its bytes.
// Threads: the send side's.
template <typename About>
class RecordSender {
 public:
  enum class Stage : std::uint8_t {
    kNone,
    kHeld,     // in the buffer; it will be a record once it has its number
    kRecord,   // in the buffer
    kInPlace,  // in the inner transport's reservation, because a part of it has left
  };
  // What a context has begun and is not at the peer yet.
  struct Outgoing {
    Stage stage = Stage::kNone;
    bool abandoned = false;  // what comes next must be seen to be the same, wholly
    About about{};
    std::span<std::byte> record;
    KeptBuffer buffer;  // the record's memory, unless it is in place

    bool begun() const { return stage != Stage::kNone; }
    void forget() noexcept {
      stage = Stage::kNone;
      abandoned = false;
      record = {};
      buffer.shrink();
    }
  };

  // Records are `overhead` bytes longer than their messages.
  RecordSender(Transport& inner, std::size_t overhead) : inner_(inner), overhead_(overhead) {}

  Outgoing& of(Context context) { return outgoing_[context]; }

  // Memory for the record of a message of `bytes`, in a context that has begun none. The caller
  // sets the stage.
  Outgoing& hold(std::size_t bytes, const About& about, Context context) {
    Outgoing& out = of(context);
    out.record = out.buffer.take(bytes + overhead_);
    out.about = about;
    return out;
  }

  // Sends the record of a message of `bytes`, which `make` writes into memory it is given, in a
  // context that has begun none.
  // kNoRoom: nothing was made. kUnderWay: push() goes on. Throws what `make` throws; nothing was
  // begun then.
  template <typename Make>
  SendResult send(std::size_t bytes, const About& about, Context context, Make make) {
    if (!fits_in_place(bytes, context)) {
      Outgoing& out = hold(bytes, about, context);
      make(out.record);
      out.stage = Stage::kRecord;
      return push(context);
    }
    // Room first: what finds none needs no number.
    const std::span<std::byte> place = inner_.try_reserve(bytes + overhead_, context);
    if (place.data() == nullptr) return SendResult::kNoRoom;
    try {
      make(place);
      const SendResult result = inner_.try_commit(place.size());
      if (!sent(result)) [[unlikely]]
        keep(result, place, about, context);
      return sent(result) ? SendResult::kSent : SendResult::kUnderWay;
    } catch (...) {
      inner_.abandon(context);
      throw;
    }
  }

  // Whether the record of a message of `bytes` would find its place now; its number comes later.
  bool finds_room(std::size_t bytes, Context context) {
    if (!fits_in_place(bytes, context)) return true;
    const bool found = inner_.try_reserve(bytes + overhead_, context).data() != nullptr;
    if (found) inner_.abandon(context);
    return found;
  }

  // Goes on with what the context has begun: kSent or kUnderWay.
  SendResult push(Context context) {
    Outgoing& out = of(context);
    if (out.stage == Stage::kHeld) return SendResult::kUnderWay;
    const bool in_place = out.stage == Stage::kInPlace;
    const SendResult result =
        in_place ? inner_.try_commit(out.record.size()) : inner_.try_send(out.record, context);
    if (!sent(result)) return SendResult::kUnderWay;
    if (in_place) in_place_ = false;
    out.forget();
    return SendResult::kSent;
  }

  // As Transport's. The memory is this process's own: what others see of it is the record.
  void check_send(Context context) const { reservation_.check_send(context); }
  std::span<std::byte> try_reserve(std::size_t bytes, Context context) {
    const std::size_t inner_most = inner_.max_in_place_bytes(context);
    const std::size_t most = inner_most - std::min(inner_most, overhead_);
    if (bytes > most) refuse_reservation(bytes, most, "Use send().");
    const Outgoing& out = of(context);
    reservation_.check_reserve(context, out.begun() && out.record.size() > inner_most);
    // A commit that found no room, abandoned since: it has its place in the order.
    if (out.begun() && !sent(push(context))) return {};
    // Another decorator gives its record a number between this call and the commit.
    if (!finds_room(bytes, context)) return {};
    reservation_.open(reservation_buffer_.take(std::max<std::size_t>(bytes, 1)).first(bytes),
                      context);
    return reservation_.memory();
  }
  // `send(message, context)` sends what was reserved.
  template <typename Send>
  SendResult try_commit(std::size_t bytes, Send send) {
    const SendResult result = send(reservation_.check_commit(bytes), reservation_.context());
    if (sent(result)) reservation_.close();
    return result;
  }
  void abandon(Context context) noexcept {
    reservation_.abandon(context);
    of(context).abandoned = of(context).begun();
  }

  // As Transport's. An end that anyone can send proves nothing, so each context ends with a record
  // of its own: `send_end(context)` sends that, or returns false to be called again;
  // `is_end(about)` tells whether a record is one.
  template <typename IsEnd, typename SendEnd>
  bool try_end(IsEnd is_end, SendEnd send_end) {
    for (; ends_sent_ < kContextCount; ++ends_sent_) {
      const Context context = ends_sent_;
      const Outgoing& out = of(context);
      if (out.begun()) {
        const bool ends = is_end(out.about);
        if (!sent(push(context))) return false;
        if (ends) continue;
      }
      if (!send_end(context)) return false;
    }
    return inner_.try_end();
  }

 private:
  bool fits_in_place(std::size_t bytes, Context context) const {
    return !in_place_ && bytes + overhead_ <= inner_.max_in_place_bytes(context);
  }

  // After a commit that was not all.
  void keep(SendResult result, std::span<std::byte> place, const About& about, Context context) {
    if (result == SendResult::kUnderWay) {
      Outgoing& out = of(context);
      out.record = place;
      out.about = about;
      out.stage = Stage::kInPlace;
      in_place_ = true;
      return;
    }
    // It has its number: it leaves as it is, from another place.
    Outgoing& out = hold(place.size() - overhead_, about, context);
    std::ranges::copy(place, out.record.begin());
    out.stage = Stage::kRecord;
    inner_.abandon(context);
  }

  Transport& inner_;
  const std::size_t overhead_;
  std::array<Outgoing, kContextCount> outgoing_;
  bool in_place_ = false;  // whether one of them is
  Reservation<> reservation_;
  KeptBuffer reservation_buffer_;
  unsigned ends_sent_ = 0;  // of contexts, in their order
};

}  // namespace leat::detail
