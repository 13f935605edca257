// Waits for several channels at once.
#pragma once

#include <functional>
#include <span>

#include "leat/channel.h"
#include "leat/export.h"

namespace leat {

// What the caller waits for: messages, or messages and room. Room often comes without an event, so
// a waiter for room sleeps for at most a millisecond at a time.
enum class WaitFor { kMessages, kRoom };

// Blocks until `done` returns true, and then returns null. `done` makes try_ calls: on each of
// `channels` at least one that takes what has arrived there (try_receive), because a sleep would
// not end otherwise. Spins and sleeps as the calls of Channel do, with the settings of the first
// channel; news on any channel ends a sleep.
// If a peer goes away, calls `done` a few times more, as what came before may show late, and, if
// that returns false, returns that peer's channel; its try_receive() tells whether the peer ended
// in order. Throws kTimeout, naming `what`, at the option `timeout`; kInvalidArgument if `channels`
// is empty; and whatever `done` throws. Threads: the caller uses the receive side of every channel,
// with kRoom the send side too. `other_fd`, an eventfd for instance, also ends a sleep while it is
// readable, so that another thread can have `done` called; `done` makes it unreadable.
LEAT_EXPORT Channel* wait_any(std::span<Channel* const> channels, WaitFor wait_for,
                              const char* what, const std::function<bool()>& done,
                              int other_fd = -1);

}  // namespace leat
