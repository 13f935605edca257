#include "preload/offer.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

#include "preload/configuration.h"
#include "preload/meeting_folder.h"
#include "preload/real.h"
#include "preload/shared_memory.h"

namespace leat::preload {
namespace {

// How often an offer is given back that perhaps no acceptor waits for.
constexpr std::uint32_t kMostHops = 16;
constexpr auto kMessageTimeout = std::chrono::seconds(1);

sockaddr_un meeting_place(std::uint16_t port, unsigned code, socklen_t& bytes) {
  sockaddr_un place{};
  place.sun_family = AF_UNIX;
  // Abstract: the name belongs to the network namespace, as the port does.
  const int length = snprintf(place.sun_path + 1, sizeof(place.sun_path) - 1, "leat-run/%u/%u/%u",
                              kMemoryVersion, unsigned{port}, code);
  bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                 static_cast<std::size_t>(length));
  return place;
}

// Waits for the message of a process that has connected; it comes at once unless the process was
// stopped in between. Signals do not end the wait: the offer would be lost, and with it the
// connection.
bool comes(int fd) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + kMessageTimeout;
  pollfd wait{.fd = fd, .events = POLLIN};
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    const int ready = real().poll(&wait, 1, static_cast<int>(left.count()));
    if (ready >= 0 || errno != EINTR) return ready == 1;
  }
}

void leave(const Offer& offer, int memfd, int meeting_fd) {
  const int fd = unix_socket();
  sockaddr_un place{};
  socklen_t bytes = sizeof(place);
  if (fd < 0 || getsockname(meeting_fd, reinterpret_cast<sockaddr*>(&place), &bytes) != 0 ||
      real().connect(fd, reinterpret_cast<const sockaddr*>(&place), bytes) != 0 ||
      !send_offer(fd, offer, memfd))
    log(Level::kError, "an offer could not be given back: %s", strerrordesc_np(errno));
  if (fd >= 0) real().close(fd);
}

}  // namespace

int connect_to_meeting_place(int fd, std::uint16_t port, unsigned code) noexcept {
  socklen_t bytes = 0;
  const sockaddr_un place = meeting_place(port, code, bytes);
  return real().connect(fd, reinterpret_cast<const sockaddr*>(&place), bytes);
}

int bind_to_meeting_place(int fd, std::uint16_t port, unsigned code) noexcept {
  socklen_t bytes = 0;
  const sockaddr_un place = meeting_place(port, code, bytes);
  return bind(fd, reinterpret_cast<const sockaddr*>(&place), bytes);
}

bool parse_meeting_place(const sockaddr_un& place, socklen_t bytes, unsigned& port,
                         unsigned& code) noexcept {
  constexpr std::size_t kBegin = offsetof(sockaddr_un, sun_path) + 1;
  if (bytes <= kBegin) return false;
  if (place.sun_path[0] != '\0') return parse_folder_place(place, port, code);
  const std::string name(place.sun_path + 1, bytes - kBegin);
  unsigned version = 0;
  return sscanf(name.c_str(), "leat-run/%u/%u/%u", &version, &port, &code) == 3 &&
         version == kMemoryVersion;
}

int unix_socket() noexcept {
  const int fd = real().socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  // A queue that stays full must not hold up connect() for ever.
  const timeval patience{.tv_sec = 1, .tv_usec = 0};
  if (fd >= 0) real().setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  return fd;
}

bool send_offer(int fd, const Offer& offer, int memfd) noexcept {
  iovec vector{.iov_base = const_cast<Offer*>(&offer), .iov_len = sizeof(offer)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  if (memfd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &memfd, sizeof(int));
  }
  return real().sendmsg(fd, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(offer));
}

bool receive_offer(int fd, Offer& offer, int& memfd) noexcept {
  memfd = -1;
  iovec vector{.iov_base = &offer, .iov_len = sizeof(offer)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  const auto take = [&] {
    // An end leaves no room for what comes with a message.
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    return real().recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  };
  ssize_t got = take();
  if (got < 0 && errno == EAGAIN) {
    // From here on its sender hears that it is not taken; what it sent before is here.
    if (!comes(fd)) real().shutdown(fd, SHUT_RD);
    got = take();
  }
  // The kernel looks for a message first and for the sender's end then: between the two both may
  // have come.
  if (got == 0) got = take();
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); got >= 0 && header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
      std::memcpy(&memfd, CMSG_DATA(header), sizeof(int));
  }
  return got == static_cast<ssize_t>(sizeof(offer)) && offer.magic == kMemoryMagic;
}

void HeldOffers::keep(const Offer& offer, int memfd) noexcept {
  if (count_ == offers_.size()) give_back();
  offers_[count_] = offer;
  memfds_[count_++] = memfd;
}

void HeldOffers::give_back() noexcept {
  for (std::size_t i = 0; i < count_; ++i) {
    Offer& offer = offers_[i];
    // Else it could go round for ever.
    const bool wanted = offer.refused == 0 && offer.copy == 0;
    if (++offer.hops <= kMostHops || wanted) leave(offer, memfds_[i], meeting_fd_);
    if (memfds_[i] >= 0) real().close(memfds_[i]);
  }
  count_ = 0;
}

void leave_copy(const Offer& offer, int memfd, int meeting_fd) noexcept {
  Offer copy = offer;
  copy.copy = 1;
  leave(copy, memfd, meeting_fd);
}

}  // namespace leat::preload
