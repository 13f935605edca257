// Waiting for several channels at once.
#pragma once

#include <functional>
#include <span>

#include "leat/channel.h"
#include "leat/export.h"

namespace leat {

// What a caller waits for: messages; or messages and room. Room often comes without any event, so
// that whoever waits for it sleeps for a millisecond at the most.
enum class WaitFor { kMessages, kRoom };

// Blocks until `done` returns true. `done` makes try_ calls: at each of `channels`, at least one
// that takes in what arrived there (try_receive), or the wait would not end when it sleeps. Spins
// and sleeps as the channels' own calls do, by the settings of the first; a sleep ends when any has
// news. Returns null; or, at once, a channel whose peer went away, after `done` had another look:
// whether that peer ended in order is what try_receive says. Throws kTimeout, naming `what`, at the
// option `timeout`; whatever `done` throws; kInvalidArgument without any channel. Threads: that of
// the channels' receive side, and with kRoom of their send side too.
LEAT_EXPORT Channel* wait_any(std::span<Channel* const> channels, WaitFor wait_for,
                              const char* what, const std::function<bool()>& done);

}  // namespace leat
