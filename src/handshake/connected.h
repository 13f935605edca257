// What a handshake makes: a connection.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/fd.h"
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

// The client's last word in a handshake, after which the connection stands for it.
enum class LastWord { kNotYet, kMayCome, kHeard };

}  // namespace leat::detail
