// The handshake of both sides over a connected stream: hello, choice, queue pair, setup.
#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "base/settings.h"
#include "conn/device_list.h"
#include "conn/hello.h"
#include "conn/link.h"

namespace leat::detail {

// One side of a handshake. `link.stream` is connected; its peer may be anyone. Referenced objects
// belong to the caller.
struct Negotiation {
  Link& link;
  const Settings& settings;
  const DeviceList& devices;
  const Prepare& prepare;
  Deadline deadline;
  std::string local_host;  // numeric, of the stream's two ends
  std::string peer_host;
  std::function<void(LastWord)> on_last_word = {};  // passive side
};

// Block until both sides are ready and `link` is complete, or throw: kTimeout at the deadline,
// kPeerDied, kProtocol, kVersion, or with both sides' reasons if no device is left. After an error
// `link` has no device; the stream stays for the caller to close.
void negotiate_active(const Negotiation& side);
void negotiate_passive(const Negotiation& side);

// Tells a client why it is turned away, if it still listens, and waits a moment until it has heard.
// Never throws, and blocks for the deadline at most.
void refuse(Stream& stream, const Error& error, Deadline deadline) noexcept;

// A refusal's bytes, for a client that spoke in clear where TLS is asked for.
std::vector<std::byte> refusal(const Error& error);

}  // namespace leat::detail
