// What ties a channel or listener to the poller that watches it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "transport/transport.h"

namespace leat::detail {

// The poller's side.
class Watch {
 public:
  Watch() = default;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  virtual ~Watch() = default;

  // What it watches was used by its own thread, not because of an event: what that left there may
  // give no event any more.
  void touch() noexcept {
    if (!hot_) heat();
  }
  // What it watches is about to be destroyed.
  virtual void leave() noexcept = 0;

 protected:
  virtual void heat() noexcept = 0;

  bool hot_ = false;
};

// The channel's side.
struct Watched {
  // --- receive side
  Watch* watch = nullptr;
  bool ahead = false;  // the poller has found a message, which is to be received next:
  Delivery delivery;
  unsigned context = 0;  // of the message that was found last

  // Whether a receive must ask take_ahead().
  bool in_use() const { return watch != nullptr || ahead; }
  // Before the transport is asked for a message of that context: what was found ahead comes first.
  // Not compiled into the receives of channels without a poller.
  [[gnu::noinline]] bool take_ahead(unsigned wanted, Delivery& to) {
    if (watch != nullptr) watch->touch();
    if (!ahead || delivery.context != wanted) return false;
    ahead = false;
    to = std::move(delivery);
    // What a transport may leave as it is when it delivers the next one.
    delivery.data = nullptr;
    delivery.must_release = false;
    return true;
  }

  // --- send side
  Watch* room_watch = nullptr;  // while it watches for room
  struct Refusal {
    std::size_t bytes = 0;
    unsigned context = 0;
  };
  std::optional<Refusal> refused;  // the message of the last try_send(), if it was refused
  std::uint64_t refusals = 0;      // ever

  void refuse(std::size_t bytes, unsigned of_context) {
    refused = {bytes, of_context};
    ++refusals;
  }
  void forget_refusal() {
    if (!refused) [[likely]]
      return;
    refused.reset();
    if (room_watch != nullptr) room_watch->touch();
  }
};

}  // namespace leat::detail
