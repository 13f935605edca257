// IP addresses as rdma_cm and offers carry them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace leat::detail {

// The 16 bytes of an IPv6 address, or of an IPv4 address mapped to one (::ffff:10.0.0.1).
using AddressBytes = std::array<std::byte, 16>;

// An IPv4 or IPv6 address with a port. Plain value. IPv4-mapped addresses become IPv4, because RDMA
// devices list them as such.
class IbAddress {
 public:
  IbAddress() = default;
  // From rdma_cm or getifaddrs; null and other families give an empty address.
  explicit IbAddress(const sockaddr* address);
  // "10.0.0.1", "fe80::1%eth0"; port 0. Throws kInvalidArgument.
  static IbAddress parse(const std::string& numeric);
  static IbAddress of_bytes(const AddressBytes& bytes, std::uint16_t port);

  sockaddr* get() noexcept { return &address_.any; }
  bool is_empty() const noexcept { return address_.any.sa_family == AF_UNSPEC; }
  bool is_v6() const noexcept { return address_.any.sa_family == AF_INET6; }
  bool is_link_local() const noexcept;
  bool is_loopback() const noexcept;
  // A link-local address has a meaning only together with an interface.
  std::uint32_t scope() const noexcept { return is_v6() ? address_.v6.sin6_scope_id : 0; }
  void set_scope(std::uint32_t scope) noexcept;
  std::uint16_t port() const noexcept;
  void set_port(std::uint16_t port) noexcept;

  AddressBytes bytes() const noexcept;
  std::string text() const;            // "10.0.0.1", "fe80::1%eth0"
  std::string text_with_port() const;  // "10.0.0.1:4711", "[fe80::1%eth0]:4711"

 private:
  union {
    sockaddr_in6 v6;  // first, as the largest: it is what {} clears
    sockaddr_in v4;
    sockaddr any;
  } address_{};
};

}  // namespace leat::detail
