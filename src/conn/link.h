// Connects two processes: TCP hello, choice of device and transport, queue pair, lifeline.
// docs/wire_format.md has the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/settings.h"
#include "base/uri.h"
#include "conn/stream.h"
#include "verbs/device.h"

namespace leat::detail {

// Two connected sides. Without RDMA (transport tcp) device and queue_pair are null.
struct Link {
  std::unique_ptr<Stream> stream;  // the lifeline: its end is the peer's death. tcp's wire
  std::unique_ptr<Device> device;
  std::unique_ptr<QueuePair> queue_pair;
  std::string transport;  // "ring", "tcp": what both agreed on
  std::string device_name = "tcp";
  std::vector<std::byte> peer_setup;  // what the peer's Prepare returned
  std::string peer_address;           // "host:port"
  std::string local_address;
  std::string rejected;  // "shm: other host; ib:mlx5_0: port down", for the log line
  std::uint64_t fallbacks = 0;
  bool active = false;  // we connected, the peer listened
};

// Makes what link.transport needs on our side (memory, posted receives), before the peer may send;
// returns what the peer must know, at most kMaxSetupBytes. May throw: the device is then given up
// and, if the fallback setting allows, the next one is tried. Called once per device tried; may
// take device and queue_pair out of the link, and gives up what it took before when it is called
// again.
using Prepare = std::function<std::vector<std::byte>(Link& link)>;
inline constexpr std::size_t kMaxSetupBytes = 1024;

// Largest queue depths that `device` allows and `transport` can use.
QueueDepths queue_depths(const Device& device, const std::string& transport);

// Throws kInvalidArgument if the settings contradict each other or their files cannot be used, as
// connect_link and accept_link would; for a listener, to fail at once.
void check_settings(const Settings& settings);

// The active side. Blocks until connect_timeout of `settings`.
Link connect_link(const Uri& uri, const Settings& settings, const Prepare& prepare);
// The same over a TCP socket that is connected already.
Link connect_link(Fd socket, const Settings& settings, const Prepare& prepare);

// The client's last word in a handshake, after which the connection stands for it.
enum class LastWord { kNotYet, kMayCome, kHeard };

// What others may want to know of a handshake of the passive side. Called in its thread.
struct HandshakeNews {
  // As soon as there is a stream that abort() can end from another thread, and with null before
  // that stream is destroyed if the handshake fails.
  std::function<void(Stream*)> on_stream;
  // It is kMayCome from the moment on that bytes of it may be there to be read.
  std::function<void(LastWord)> on_last_word;
};

// The passive side for one accepted TCP socket. Blocks until handshake_timeout of `settings`.
Link accept_link(Fd socket, const Settings& settings, const Prepare& prepare,
                 const HandshakeNews& news);

// A bound, listening, non-blocking TCP socket. Throws kAddress if the port is in use.
Fd listen_tcp(const Uri& uri);
// "host:port" of either end of a socket, IPv6 in brackets.
std::string local_address(int socket);
std::string peer_address(int socket);

}  // namespace leat::detail
