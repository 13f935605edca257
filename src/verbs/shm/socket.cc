#include "verbs/shm/socket.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "base/system_error.h"
#include "base/user_namespace.h"

namespace leat::detail::shm {
namespace {

Fd new_socket() {
  return Fd(
      check(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "socket(AF_UNIX)"));
}

// An abstract name starts with a zero byte; only its length ends it.
socklen_t abstract_address(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::size_t bytes = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), bytes);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
}

}  // namespace

Fd listen_at(const std::string& name) {
  Fd fd = new_socket();
  sockaddr_un address;
  const socklen_t bytes = abstract_address(name, address);
  check(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), bytes), "bind(shm socket)");
  check(listen(fd.get(), 16), "listen(shm socket)");
  return fd;
}

Fd connect_to(const std::string& name) {
  Fd fd = new_socket();
  sockaddr_un address;
  const socklen_t bytes = abstract_address(name, address);
  check(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), bytes),
        "connect(shm socket of the peer)");
  return fd;
}

bool same_user(int socket) {
  const auto peer = peer_of(socket);
  return peer && peer->uid == geteuid() && is_one_user(peer->uid);
}

}  // namespace leat::detail::shm
