// Addresses of TCP, those of IPv4 as mapped into IPv6, so that both ends of a connection write the
// same.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace leat::preload {

struct Address {
  std::array<std::uint8_t, 16> bytes{};
  std::uint16_t port = 0;  // host byte order; 0: no address of TCP

  static Address v4(in_addr address, std::uint16_t port) {
    Address result;
    result.bytes[10] = result.bytes[11] = 0xff;
    std::memcpy(&result.bytes[12], &address, 4);
    result.port = port;
    return result;
  }

  static Address from(const sockaddr_storage& storage) {
    if (storage.ss_family == AF_INET) {
      sockaddr_in in{};
      std::memcpy(&in, &storage, sizeof(in));
      return v4(in.sin_addr, ntohs(in.sin_port));
    }
    Address result;
    if (storage.ss_family == AF_INET6) {
      sockaddr_in6 in{};
      std::memcpy(&in, &storage, sizeof(in));
      std::memcpy(result.bytes.data(), &in.sin6_addr, 16);
      result.port = ntohs(in.sin6_port);
    }
    return result;
  }

  // In place of another address of the same socket, whose family and scope stay.
  void put_into(sockaddr_storage& storage) const {
    if (storage.ss_family == AF_INET) {
      auto& in = reinterpret_cast<sockaddr_in&>(storage);
      in.sin_port = htons(port);
      std::memcpy(&in.sin_addr, &bytes[12], sizeof(in.sin_addr));
    } else if (storage.ss_family == AF_INET6) {
      auto& in = reinterpret_cast<sockaddr_in6&>(storage);
      in.sin6_port = htons(port);
      std::memcpy(&in.sin6_addr, bytes.data(), sizeof(in.sin6_addr));
    }
  }

  bool mapped() const {
    static constexpr std::array<std::uint8_t, 12> kPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(bytes.data(), kPrefix.data(), kPrefix.size()) == 0;
  }

  bool any() const {
    const std::size_t first = mapped() ? 12 : 0;
    for (std::size_t i = first; i < bytes.size(); ++i)
      if (bytes[i] != 0) return false;
    return true;
  }

  std::string text() const {
    char host[INET6_ADDRSTRLEN] = "?";
    if (mapped()) {
      inet_ntop(AF_INET, &bytes[12], host, sizeof(host));
      return std::string(host) + ":" + std::to_string(port);
    }
    inet_ntop(AF_INET6, bytes.data(), host, sizeof(host));
    return "[" + std::string(host) + "]:" + std::to_string(port);
  }

  bool operator==(const Address&) const = default;
};

}  // namespace leat::preload
