// What try_reserve has handed out and try_commit is to send.
#pragma once

#include <cstddef>
#include <span>
#include <variant>

#include "transport/parts/refusals.h"
#include "transport/transport.h"

namespace leat::detail {

// The one reservation that a transport has at a time, and what is refused because of it, all by
// kInvalidArgument. `Place`: what the transport must know of the memory besides. Threads: the send
// side's.
template <typename Place = std::monostate>
class Reservation {
 public:
  // `memory` is not null, even for no bytes.
  void open(std::span<std::byte> memory, Context context, const Place& place = {}) {
    memory_ = memory;
    context_ = context;
    place_ = place;
  }
  // It is sent, or given up.
  void close() { memory_ = {}; }
  void abandon(Context context) {
    if (context_ == context) close();
  }

  bool is_open() const { return memory_.data() != nullptr; }
  std::span<std::byte> memory() const { return memory_; }
  Context context() const { return context_; }
  const Place& place() const { return place_; }

  // Before a message is sent in that context: not while it is reserved there.
  void check_send(Context context) const {
    if (is_open() && context_ == context) [[unlikely]]
      refuse_while_reserved(context);
  }
  // Before another is reserved: not while one is open, or a message is under way in that context.
  void check_reserve(Context context, bool under_way) const {
    if (is_open() || under_way) refuse_while_unfinished(context);
  }
  // What a commit of so many bytes sends: as many must be reserved.
  std::span<std::byte> check_commit(std::size_t bytes) const {
    if (!is_open() || bytes > memory_.size()) refuse_commit(bytes);
    return memory_.first(bytes);
  }

 private:
  std::span<std::byte> memory_;
  Context context_ = 0;
  [[no_unique_address]] Place place_{};
};

}  // namespace leat::detail
