// TCP sockets: names, connecting with a deadline and retries, addresses as text. link.h declares
// what the layers above use of this: listen_tcp, local_address, peer_address.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/uri.h"

namespace leat::detail {

// A connected, non-blocking TCP socket. Blocks until `deadline`. Tries every address of the name;
// with `retry` again and again while the peer refuses or cannot be reached. Throws kRefused,
// kAddress, kTimeout; the text says how often and how long was tried.
Fd connect_tcp(const Uri& uri, Deadline deadline, bool retry);

// The address without port or brackets, IPv4 also where the socket is IPv6: "10.0.0.1",
// "fe80::1%eth0".
std::string local_host(int socket);
std::string peer_host(int socket);

// "host:port", brackets around IPv6.
std::string host_and_port(const std::string& host, unsigned port);

}  // namespace leat::detail
