// Options of sockets that are not left to the kernel's own socket beside a connection.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace leat::posix {

// As getsockopt(2) gives an int: at most as much as there is room for. 0 or -errno.
inline int give_int(int number, void* value, socklen_t* bytes) {
  if (value == nullptr || bytes == nullptr) return -EFAULT;
  if (static_cast<int>(*bytes) < 0) return -EINVAL;
  *bytes = std::min<socklen_t>(*bytes, sizeof number);
  std::memcpy(value, &number, *bytes);
  return 0;
}

// As setsockopt(2) gets one. 0 or -errno.
inline int get_int(const void* value, socklen_t bytes, int& number) {
  if (bytes < sizeof number) return -EINVAL;
  if (value == nullptr) return -EFAULT;
  std::memcpy(&number, value, sizeof number);
  return 0;
}

// -errno of an option that would change how the kernel's socket carries what is sent beside, or 0.
inline int refuses_option(int level, int option) {
  if (level == IPPROTO_TCP && option == TCP_ULP) return -ENOENT;
  return level == SOL_SOCKET && option == SO_ZEROCOPY ? -EOPNOTSUPP : 0;
}

// In what the kernel gave for TCP_INFO, the state that the connection has.
inline void put_tcp_state(int state, void* info, socklen_t bytes) {
  static_assert(offsetof(tcp_info, tcpi_state) == 0 && sizeof(tcp_info::tcpi_state) == 1);
  if (bytes != 0) *static_cast<std::uint8_t*>(info) = static_cast<std::uint8_t>(state);
}

}  // namespace leat::posix
