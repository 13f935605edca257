// Connects two processes: TCP hello, choice of device and transport, a running transport, and the
// lifeline. docs/wire_format.md has the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/settings.h"
#include "base/uri.h"
#include "net/stream.h"
#include "transport/transport.h"
#include "verbs/row.h"

namespace leat::detail {

// Holds all that it needs of the system before its peer is told that the connection stands.
struct Connection {
  std::unique_ptr<Stream> stream;        // the lifeline: its end is the peer's death; tcp's wire
  std::unique_ptr<Transport> transport;  // destroyed before the stream
  std::string transport_name;
  std::string device_name = kNoDevice;
  std::string description;  // one line: transport, device, addresses, why better ones were rejected
  std::string peer_address;  // "host:port"
  std::string local_address;
  std::string rejected;  // "shm: other host; ib:mlx5_0: port down"
  std::uint64_t fallbacks = 0;
  Fd closing;  // ChannelCore's
};

// Throws kInvalidArgument if the settings contradict each other or their files cannot be used, as
// open_connection and accept_connection would; for a listener, to fail at once.
void check_settings(const Settings& settings);

// The active side, from an address or over a TCP socket that is connected already. Blocks until
// connect_timeout of `settings`; logs the description at info.
Connection open_connection(const Uri& uri, const Settings& settings);
Connection open_connection(Fd socket, const Settings& settings);

// The client's last word in a handshake, after which the connection stands for it.
enum class LastWord { kNotYet, kMayCome, kHeard };

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
