// TCP sockets: names, connecting with a deadline and retries, listening, addresses as text.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/uri.h"

namespace leat::detail {

// Returns a connected, non-blocking TCP socket. Blocks until `deadline`. Tries every address of the
// name; with `retry` repeatedly while the peer refuses or cannot be reached. Throws kRefused,
// kAddress, kTimeout; the text says how often and how long it tried.
Fd connect_tcp(const Uri& uri, Deadline deadline, bool retry);

// When connect_tcp tries again after a try that was over at `now`, of which the last comes just
// before the deadline; none: that was the last. It looks at no clock: a thread that loses its core
// meanwhile has no try less.
std::optional<Deadline> next_try(Clock::time_point now, std::chrono::milliseconds backoff,
                                 Deadline deadline);

// Returns a bound, listening, non-blocking TCP socket. Throws kAddress if the port is in use.
Fd listen_tcp(const Uri& uri);
// "host:port" of either end of a socket, IPv6 in brackets.
std::string local_address(int socket);
std::string peer_address(int socket);

// The address without port or brackets, IPv4 also where the socket is IPv6: "10.0.0.1",
// "fe80::1%eth0".
std::string local_host(int socket);
std::string peer_host(int socket);

// The source of a connection, as far as one host or network counts as one: the bytes of the peer's
// IPv4 address, or those of the first half of its IPv6 address.
std::string source_of(int socket);

// "host:port", brackets around IPv6.
std::string host_and_port(const std::string& host, unsigned port);

}  // namespace leat::detail
