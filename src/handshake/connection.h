// Connects two processes: TCP hello, choice of device and transport, a running transport, and the
// lifeline. docs/wire_format.md has the bytes.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "base/settings.h"
#include "base/uri.h"
#include "handshake/connected.h"
#include "net/stream.h"

namespace leat::detail {

// Throws kInvalidArgument if the settings contradict each other or their files cannot be used, as
// open_connection and accept_connection would; for a listener, to fail at once.
void check_settings(const Settings& settings);

// The active side, from an address or over a TCP socket that is connected already. Blocks until
// connect_timeout of `settings`; logs the description at info.
Connection open_connection(const Uri& uri, const Settings& settings);
Connection open_connection(Fd socket, const Settings& settings);

// What the passive side tells of its handshake, in the thread of the handshake.
struct HandshakeNews {
  // Before the stream is destroyed because the handshake fails: it must not be aborted any more.
  std::function<void()> on_stream_end;
  // kMayCome once bytes of the last word may be there to be read; kHeard also while they are being
  // read.
  std::function<void(LastWord)> on_last_word;
};

// A client whose hello has come, and that has authenticated itself if the settings ask for that:
// what Greeting (handshake/greeting.h) gives.
struct Heard {
  std::unique_ptr<Stream> stream;
  std::vector<std::byte> hello;  // a frame with a valid header
};

// The rest of the passive side. Blocks until handshake_timeout of `settings`; another thread may
// abort the stream meanwhile. Logs the description at info.
Connection accept_connection(Heard client, const Settings& settings, const HandshakeNews& news);

}  // namespace leat::detail
