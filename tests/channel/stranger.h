// A TCP connection that sends nothing by itself, for tests of what hostile newcomers can do.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/fd.h"
#include "base/system_error.h"

namespace leat::detail {

inline constexpr const char* kHere = "127.0.0.1";
inline constexpr const char* kElsewhere = "127.0.0.2";  // another source, on the same host

// Connects from `source` to that port of kHere.
inline Fd knock(unsigned port, const char* source = kHere) {
  Fd socket(check(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, source, &address.sin_addr);
  const int on = 1;
  setsockopt(socket.get(), SOL_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
  check(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), "bind");
  inet_pton(AF_INET, kHere, &address.sin_addr);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  check(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
        "connect");
  return socket;
}

inline void say(const Fd& socket, std::span<const std::byte> bytes) {
  // The listener may have hung up already.
  (void)::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}
inline void say(const Fd& socket, std::string_view text) {
  say(socket, std::as_bytes(std::span(text)));
}

}  // namespace leat::detail
