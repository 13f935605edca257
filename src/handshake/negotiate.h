// The handshake of both sides over a connected stream: hello, choice, queue pair, setup.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/settings.h"
#include "handshake/connected.h"
#include "handshake/device_list.h"
#include "handshake/hello.h"

namespace leat::detail {

// One side of a handshake. `connection.stream` is connected; its peer may be anyone. Referenced
// objects belong to the caller.
struct Negotiation {
  Connection& connection;
  const Settings& settings;
  const DeviceList& devices;
  Deadline deadline;
  bool active;                                      // this side connected, the peer listened
  Route route;                                      // the stream's two ends
  std::function<void(LastWord)> on_last_word = {};  // passive side
};

// Block until both sides have made the transport, and return the peer's setup(), for start(); or
// throw: kTimeout at the deadline, kPeerDied, kProtocol, kVersion, or with both sides' reasons if
// no device is left. After an error `connection` has no transport; the stream stays for the caller
// to close.
std::vector<std::byte> negotiate_active(const Negotiation& side);
// `hello`: the client's, a frame with a valid header.
std::vector<std::byte> negotiate_passive(const Negotiation& side, std::span<const std::byte> hello);

// The bytes that tell a client why it is turned away.
std::vector<std::byte> refusal(const Error& error);

}  // namespace leat::detail
