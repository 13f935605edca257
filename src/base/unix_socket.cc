#include "base/unix_socket.h"

#include <poll.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/system_error.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5; older C libraries do not name it
#endif

namespace leat::detail {

std::optional<sockaddr_un> unix_address(const std::string& path) noexcept {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) return std::nullopt;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  return address;
}

std::optional<ucred> peer_of(int socket) noexcept {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return std::nullopt;
  return peer;
}

bool peer_may_live(int socket) noexcept {
  int handle = -1;
  socklen_t bytes = sizeof handle;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &handle, &bytes) != 0)
    return errno == ENOPROTOOPT;
  const Fd process(handle);
  pollfd end{handle, POLLIN, 0};
  return poll(&end, 1, 0) == 0;
}

std::uint64_t pid_namespace() noexcept {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

bool send_message(int socket, std::span<const std::byte> message, std::span<const int> fds) {
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxPassedFds * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  if (sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
  if (errno == EAGAIN || errno == EINTR) return false;
  throw system_error("sendmsg(unix socket)", errno);
}

ReceiveMessage receive_message(int socket, std::span<std::byte> message, std::size_t max_fds,
                               std::vector<Fd>& fds) {
  fds.clear();
  iovec part{message.data(), message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxPassedFds * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = CMSG_SPACE(max_fds * sizeof(int));
  const ssize_t received = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received < 0)
    return errno == EAGAIN || errno == EINTR ? ReceiveMessage::kNothing : ReceiveMessage::kPeerGone;
  for (cmsghdr* part_of = CMSG_FIRSTHDR(&header); part_of != nullptr;
       part_of = CMSG_NXTHDR(&header, part_of)) {
    if (part_of->cmsg_level != SOL_SOCKET || part_of->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part_of->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part_of) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  // The kernel drops what it cannot put into our table.
  if ((header.msg_flags & MSG_CTRUNC) != 0 && fds.size() < max_fds)
    throw system_error("receiving descriptors through a unix socket", EMFILE);
  const bool whole = static_cast<std::size_t>(received) == message.size() &&
                     (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  return whole ? ReceiveMessage::kMessage : ReceiveMessage::kPeerGone;
}

}  // namespace leat::detail
