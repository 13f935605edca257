#include "net/tcp.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <system_error>
#include <vector>

#include "base/quote.h"
#include "base/system_error.h"
#include "leat/error.h"
#include "net/resolve.h"

namespace leat::detail {
namespace {

constexpr std::chrono::milliseconds kFirstBackoff{10};
constexpr std::chrono::milliseconds kMaxBackoff{500};

std::string errno_text(int system_errno) {
  return std::error_code(system_errno, std::generic_category()).message();
}

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof(sockaddr_storage);

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

SocketAddress name_of(int socket) {
  SocketAddress address;
  check(getsockname(socket, address.get(), &address.bytes), "getsockname");
  return address;
}

SocketAddress peer_of(int socket) {
  SocketAddress address;
  if (getpeername(socket, address.get(), &address.bytes) < 0) {
    // A peer that resets the connection takes its name with it.
    throw system_error("getpeername", errno == ENOTCONN ? ECONNRESET : errno);
  }
  return address;
}

unsigned port_of(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
}

std::string host_of(const SocketAddress& address) {
  char host[NI_MAXHOST] = "";
  if (getnameinfo(address.get(), address.bytes, host, sizeof host, nullptr, 0, NI_NUMERICHOST) !=
      0) {
    return "unknown";
  }
  // A dual-stack socket shows IPv4 peers as ::ffff:10.0.0.1.
  constexpr std::string_view kMapped = "::ffff:";
  const std::string_view text = host;
  const bool mapped = text.starts_with(kMapped) && text.find('.') != std::string_view::npos;
  return std::string(mapped ? text.substr(kMapped.size()) : text);
}

std::string text_of(const SocketAddress& address) {
  return host_and_port(host_of(address), port_of(address));
}

// The errno of the attempt, 0 on success; ETIMEDOUT at the deadline.
int connect_one(int socket, const ResolvedAddress& address, Deadline deadline) {
  int result = 0;
  do {
    result = connect(socket, address.get(), address.bytes);
  } while (result < 0 && errno == EINTR);
  if (result == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  for (;;) {
    pollfd entry{socket, POLLOUT, 0};
    const int ready = poll(&entry, 1, poll_timeout_ms(deadline));
    if (ready < 0 && errno != EINTR) return errno;
    if (ready > 0) break;
    if (passed(deadline)) return ETIMEDOUT;
  }
  int failure = 0;
  socklen_t bytes = sizeof failure;
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &failure, &bytes) < 0) return errno;
  return failure;
}

// 0 if this is a connection, else why not, as an errno: the peer may have reset it at once, and
// TCP lets a socket that tries its own ephemeral port connect to itself.
int check_connection(int socket) {
  SocketAddress peer;
  if (getpeername(socket, peer.get(), &peer.bytes) < 0) return ECONNRESET;
  return text_of(name_of(socket)) == text_of(peer) ? ECONNREFUSED : 0;
}

// Each address gets its share of the time, so that one that swallows packets leaves some to the
// next.
Deadline share_of(Deadline deadline, std::size_t addresses_left) {
  if (deadline == kNoDeadline || addresses_left <= 1) return deadline;
  const auto now = Clock::now();
  return now + (deadline - now) / static_cast<int>(addresses_left);
}

// A connected socket, or none and the last attempt's errno.
Fd try_addresses(const std::vector<ResolvedAddress>& addresses, Deadline deadline, int& failure) {
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const ResolvedAddress& address = addresses[i];
    Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) {
      failure = errno;
      if (failure == EMFILE || failure == ENFILE) throw system_error("socket", failure);
      continue;
    }
    failure = connect_one(socket.get(), address, share_of(deadline, addresses.size() - i));
    if (failure == 0) failure = check_connection(socket.get());
    if (failure == 0) return socket;
  }
  return {};
}

bool worth_a_retry(int failure) {
  return failure == ECONNREFUSED || failure == EHOSTUNREACH || failure == ENETUNREACH ||
         failure == ECONNRESET || failure == EHOSTDOWN;
}

Error cannot_connect(const Uri& uri, int tries, Clock::time_point start, int failure, bool retry,
                     bool in_time) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f",
                std::chrono::duration<double>(Clock::now() - start).count());
  const std::string text = "cannot connect to " + host_and_port(uri.host, uri.port) + " after " +
                           std::to_string(tries) + (tries == 1 ? " try in " : " tries in ") +
                           seconds + " s because: " + errno_text(failure);
  ErrorCode code = system_error("connect", failure).code();
  if (retry && !in_time) code = ErrorCode::kTimeout;
  if (code == ErrorCode::kPeerDied) code = ErrorCode::kRefused;
  std::string advice = "Check that the peer's host is up and that firewalls let TCP port " +
                       std::to_string(uri.port) + " and, for RoCE, UDP port 4791 pass.";
  if (failure == ECONNREFUSED) {
    advice = "Is the peer listening at that address and port?";
    if (!retry) advice += " With connect_retry=yes programs may start in any order.";
  }
  return {code, text, advice, failure};
}

// Waits for the next try; false: the last one was made.
bool back_off(std::chrono::milliseconds& backoff, Deadline deadline) {
  const std::optional<Deadline> wake = next_try(Clock::now(), backoff, deadline);
  if (!wake) return false;
  while (!passed(*wake)) poll(nullptr, 0, poll_timeout_ms(*wake));
  backoff = std::min(backoff * 2, kMaxBackoff);
  return true;
}

Error cannot_listen(const Uri& uri, const char* call, int failure) {
  const std::string where = host_and_port(uri.host.empty() ? "*" : uri.host, uri.port);
  std::string advice;
  if (failure == EADDRINUSE) {
    advice =
        "Another program listens there (ss -tlnp shows which): end it, or choose another port; "
        "port 0 lets the system choose.";
  } else if (failure == EADDRNOTAVAIL) {
    advice = "This host has no such address: ip address shows those it has.";
  } else if (failure == EACCES) {
    advice = "Ports below 1024 need privileges: choose a higher one.";
  } else {
    return system_error(std::string(call) + "(" + where + ")", failure);
  }
  return {ErrorCode::kAddress, "cannot listen at " + where + ": " + errno_text(failure), advice,
          failure};
}

// A listening socket, or none with `call` and errno of what failed.
Fd try_listen(const ResolvedAddress& address, const char*& call, int& failure) {
  const auto failed = [&](const char* name) {
    call = name;
    failure = errno;
    return Fd();
  };
  Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return failed("socket");
  const int on = 1;
  const int off = 0;
  if (setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0) {
    return failed("setsockopt(SO_REUSEADDR)");
  }
  // IPv4 peers reach [::] too.
  if (address.family() == AF_INET6 &&
      setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) < 0) {
    return failed("setsockopt(IPV6_V6ONLY)");
  }
  if (bind(socket.get(), address.get(), address.bytes) < 0) return failed("bind");
  if (listen(socket.get(), SOMAXCONN) < 0) return failed("listen");
  return socket;
}

}  // namespace

std::string host_and_port(const std::string& host, unsigned port) {
  const bool brackets = host.find(':') != std::string::npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string local_host(int socket) { return host_of(name_of(socket)); }
std::string peer_host(int socket) { return host_of(peer_of(socket)); }
std::string local_address(int socket) { return text_of(name_of(socket)); }
std::string peer_address(int socket) { return text_of(peer_of(socket)); }

std::string source_of(int socket) {
  const SocketAddress peer = peer_of(socket);
  const auto text = [](const void* bytes, std::size_t count) {
    return std::string(static_cast<const char*>(bytes), count);
  };
  if (peer.storage.ss_family == AF_INET)
    return text(&reinterpret_cast<const sockaddr_in*>(&peer.storage)->sin_addr, 4);
  if (peer.storage.ss_family != AF_INET6) return {};
  const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(&peer.storage)->sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&address)) return text(&address.s6_addr[12], 4);
  return text(&address, 8);
}

std::optional<Deadline> next_try(Clock::time_point now, std::chrono::milliseconds backoff,
                                 Deadline deadline) {
  constexpr std::chrono::milliseconds kTry{10};
  if (deadline == kNoDeadline) return now + backoff;
  if (now >= deadline - kTry) return std::nullopt;
  return std::min(now + backoff, deadline - kTry);
}

Fd connect_tcp(const Uri& uri, Deadline deadline, bool retry) {
  const std::string advice = "Write the peer's address as host:port.";
  if (uri.host.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the address to connect to has no host", advice);
  }
  if (uri.port == 0) {
    throw Error(ErrorCode::kInvalidArgument, "the address to connect to has port 0", advice);
  }
  const auto start = Clock::now();
  const std::vector<ResolvedAddress> addresses = resolve(uri.host, uri.port, deadline);
  std::chrono::milliseconds backoff = kFirstBackoff;
  for (int tries = 1;; ++tries) {
    int failure = 0;
    Fd socket = try_addresses(addresses, deadline, failure);
    if (socket) return socket;
    if (!retry || !worth_a_retry(failure)) {
      throw cannot_connect(uri, tries, start, failure, retry, true);
    }
    if (!back_off(backoff, deadline)) {
      throw cannot_connect(uri, tries, start, failure, retry, false);
    }
  }
}

Fd listen_tcp(const Uri& uri) {
  const char* call = "";
  int failure = 0;
  for (const ResolvedAddress& address : resolve_to_listen(uri.host, uri.port)) {
    Fd socket = try_listen(address, call, failure);
    if (socket) return socket;
    // A port that is taken in one address family must not go to the other one silently.
    if (failure == EADDRINUSE) break;
  }
  throw cannot_listen(uri, call, failure);
}

}  // namespace leat::detail
