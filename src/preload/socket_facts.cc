#include "preload/socket_facts.h"

#include <linux/socket.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

#include "preload/real.h"
#include "preload/undisturbed.h"

namespace leat::preload {

int option(int fd, int level, int name) noexcept {
  int value = -1;
  socklen_t bytes = sizeof(value);
  if (real().getsockopt(fd, level, name, &value, &bytes) != 0) return -1;
  return value;
}

void set_option(int fd, int level, int name, int value) noexcept {
  real().setsockopt(fd, level, name, &value, sizeof(value));
}

bool resets_at_close(int fd) noexcept {
  linger value{};
  socklen_t bytes = sizeof(value);
  return real().getsockopt(fd, SOL_SOCKET, SO_LINGER, &value, &bytes) == 0 && value.l_onoff != 0 &&
         value.l_linger == 0;
}

Buffers program_buffers(int fd) noexcept {
  const int locks = option(fd, SOL_SOCKET, SO_BUF_LOCK);
  const auto size = [&](int lock, int name) {
    return locks > 0 && (locks & lock) != 0
               ? static_cast<std::uint32_t>(std::max(option(fd, SOL_SOCKET, name), 0))
               : 0U;
  };
  return {size(SOCK_SNDBUF_LOCK, SO_SNDBUF), size(SOCK_RCVBUF_LOCK, SO_RCVBUF)};
}

Address local_address(int fd) noexcept {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof(storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) return {};
  return Address::from(storage);
}

Address peer_address(int fd) noexcept {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof(storage);
  if (real().getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) return {};
  return Address::from(storage);
}

bool is_local(const Address& peer, const Address& own) noexcept {
  return peer.bytes == own.bytes || (peer.mapped() && peer.bytes[12] == 127);
}

bool is_of_this_host(const sockaddr_storage& storage, const Address& own) noexcept {
  if (is_local(Address::from(storage), own)) return true;
  const int probe = real().socket(storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return true;
  sockaddr_storage any_port = storage;
  reinterpret_cast<sockaddr_in&>(any_port).sin_port = 0;  // where that of IPv6 is too
  const bool good = bind(probe, reinterpret_cast<sockaddr*>(&any_port), sizeof(any_port)) == 0;
  real().close(probe);
  return good;
}

bool is_tcp(int fd) noexcept {
  const Undisturbed undisturbed;
  if (option(fd, SOL_SOCKET, SO_PROTOCOL) != IPPROTO_TCP) return false;
  const int domain = option(fd, SOL_SOCKET, SO_DOMAIN);
  return domain == AF_INET || domain == AF_INET6;
}

std::uint64_t cookie_of(int fd) noexcept {
  const Undisturbed undisturbed;
  std::uint64_t cookie = 0;
  socklen_t bytes = sizeof(cookie);
  return real().getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &bytes) == 0 ? cookie : 0;
}

bool is_connectable(int fd) noexcept {
  const Undisturbed undisturbed;
  tcp_info info{};
  socklen_t bytes = sizeof(info);
  return real().getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
         info.tcpi_state == TCP_CLOSE && is_tcp(fd);
}

bool has_urgent(int fd) noexcept {
  const Undisturbed undisturbed;
  char urgent = 0;
  return real().recv(fd, &urgent, 1, MSG_OOB | MSG_PEEK | MSG_DONTWAIT) == 1;
}

}  // namespace leat::preload
