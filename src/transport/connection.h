// From an address or an accepted TCP socket to a running transport.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/settings.h"
#include "base/uri.h"
#include "conn/stream.h"
#include "transport/transport.h"

namespace leat::detail {

struct HandshakeNews;

struct Connection {
  std::unique_ptr<Stream> stream;  // the lifeline; must outlive the transport
  std::unique_ptr<Transport> transport;
  std::string transport_name;
  std::string device_name;
  std::string description;  // one line: transport, device, addresses, why better ones were rejected
  std::string peer_address;
  std::string local_address;
  std::uint64_t fallbacks = 0;
};

// They block as connect_link and accept_link do, log the description at info, and throw their
// errors.
Connection open_connection(const Uri& uri, const Settings& settings);
Connection open_connection(Fd socket, const Settings& settings);  // connected by TCP already
Connection accept_connection(Fd socket, const Settings& settings, const HandshakeNews& news);

}  // namespace leat::detail
