#include "preload/passing.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>

#include "preload/call.h"
#include "preload/configuration.h"
#include "preload/hidden.h"
#include "preload/inherited.h"
#include "preload/listener.h"
#include "preload/offer.h"
#include "preload/offering.h"
#include "preload/socket_facts.h"
#include "preload/undisturbed.h"

namespace leat::preload {
namespace {

constexpr std::size_t kMostRights = 253;     // of the kernel, in one message
constexpr std::size_t kControlBytes = 4096;  // more than a unix socket ever gives
using Numbers = std::array<int, kMostRights>;

std::size_t count_of(const cmsghdr& header) {
  return (header.cmsg_len - CMSG_LEN(0)) / sizeof(int);
}

bool has_rights(const cmsghdr& header) {
  return header.cmsg_level == SOL_SOCKET && header.cmsg_type == SCM_RIGHTS;
}

template <typename Visit>
void for_each_right(const msghdr& message, Visit visit) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(const_cast<msghdr*>(&message), header)) {
    if (!has_rights(*header) || header->cmsg_len < CMSG_LEN(0)) continue;
    for (std::size_t i = 0; i < count_of(*header); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      visit(fd);
    }
  }
}

void add_once(int fd, Numbers& fds, std::size_t& count) {
  if (std::find(fds.begin(), fds.begin() + count, fd) == fds.begin() + count) fds[count++] = fd;
}

// Collects what has to go with them: memory and meeting places, then the state of ends. False:
// something that must go cannot.
bool companions(const msghdr& message, Numbers& hidden, std::size_t& count) {
  bool good = true;
  for_each_right(message, [&](int fd) {
    const Reference object = find(fd);
    if (!object.is(Kind::kConnection) && !object.is(Kind::kListener)) return;
    object->made_at = 0;
    const int one = object.is(Kind::kConnection) ? object->connection.memfd() : object->meeting_fd;
    if (!is_hidden(one) || count == hidden.size()) {
      log(Level::kError, "descriptor %d cannot be passed on: no number was free for its memory",
          fd);
      good = false;
    } else {
      add_once(one, hidden, count);
    }
  });
  for_each_right(message, [&](int fd) {
    const Reference object = find(fd);
    if (!object.is(Kind::kConnection) || count == hidden.size()) return;
    const int ends = memfd_of(object->connection.end());
    if (is_hidden(ends)) add_once(ends, hidden, count);
  });
  return good;
}

// Appends to the program's control buffer as the kernel does, which tells what had no room.
class Control {
 public:
  explicit Control(msghdr& message, std::size_t room) : message_(message), room_(room) {}

  void append(const cmsghdr& header, const void* data, std::size_t bytes) {
    if (room_ - used_ < sizeof(cmsghdr)) {
      message_.msg_flags |= MSG_CTRUNC;
      return;
    }
    const std::size_t fitting = std::min(bytes, room_ - used_ - CMSG_LEN(0));
    if (fitting < bytes) message_.msg_flags |= MSG_CTRUNC;
    cmsghdr copy = header;
    copy.cmsg_len = CMSG_LEN(fitting);
    auto* to = static_cast<std::byte*>(message_.msg_control) + used_;
    std::memcpy(to, &copy, sizeof(copy));
    std::memcpy(to + CMSG_LEN(0), data, fitting);
    used_ = std::min(room_, used_ + CMSG_SPACE(fitting));
  }

  // Those that have no room are closed.
  void append_rights(const cmsghdr& header, const int* fds, std::size_t count) {
    const std::size_t room =
        room_ - used_ < CMSG_LEN(sizeof(int)) ? 0 : (room_ - used_ - CMSG_LEN(0)) / sizeof(int);
    const std::size_t fitting = std::min(room, count);
    for (std::size_t i = fitting; i < count; ++i) real().close(fds[i]);
    if (fitting != 0) append(header, fds, fitting * sizeof(int));
    if (fitting < count) message_.msg_flags |= MSG_CTRUNC;
  }

  std::size_t used() const { return used_; }

 private:
  msghdr& message_;
  std::size_t room_;
  std::size_t used_ = 0;
};

// Whether it is the memory of a connection; if so, `cookies` are the connection's.
bool is_memory(int fd, std::array<std::uint64_t, 2>& cookies) {
  if (!is_sealed(fd)) return false;
  SharedMemory header{};
  // Only what is compared: the other end may be writing the rest.
  if (pread(fd, &header, sizeof(header), 0) != sizeof(header)) return false;
  if (header.magic != kMemoryMagic || header.version != kMemoryVersion) return false;
  cookies = {header.sides[0].cookie.load(), header.sides[1].cookie.load()};
  return true;
}

// Whether it is where offers arrive.
bool is_meeting_place(int fd, unsigned& port, unsigned& code) {
  sockaddr_un place{};
  socklen_t bytes = sizeof(place);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&place), &bytes) != 0 ||
      place.sun_family != AF_UNIX || bytes >= sizeof(place))
    return false;
  return parse_meeting_place(place, bytes, port, code);
}

// The state of ends that came with a message, from a process of our own user or root; other users
// are not trusted with it.
class CameWith {
 public:
  explicit CameWith(int fd) noexcept {
    ucred sender{};
    socklen_t bytes = sizeof(sender);
    trusted_ = real().getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &sender, &bytes) == 0 &&
               is_trusted(sender.uid, geteuid());
  }

  // Takes the descriptor over.
  void add(int fd) noexcept {
    if (trusted_ && count_ < ends_.size()) {
      ends_[count_++].emplace(hide(fd));
    } else {
      real().close(fd);
    }
  }

  EndHold find(std::uint64_t cookie) const noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      if (const EndHold end = ends_[i]->find(cookie); end.state != nullptr) return end;
    }
    return {};
  }

 private:
  bool trusted_ = false;
  std::size_t count_ = 0;
  std::array<std::optional<AdoptedEnds>, 8> ends_;
};

// A descriptor of ours that came with others: for which of those it is. False: it is not ours.
bool settle(int hidden, const int* fds, std::size_t count, CameWith& with) {
  if (is_end_memory(hidden)) {
    with.add(hidden);
    return true;
  }
  std::array<std::uint64_t, 2> cookies{};
  if (is_memory(hidden, cookies)) {
    hidden = hide(hidden);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t cookie = cookie_of(fds[i]);
      if (cookie == 0 || (cookie != cookies[0] && cookie != cookies[1])) continue;
      if (find(fds[i]).is(Kind::kConnection)) continue;
      if (hidden >= 0)
        take_over_connection(fds[i], hidden, cookie == cookies[0] ? 0 : 1, with.find(cookie));
      return true;
    }
    if (hidden >= 0) close_hidden(hidden);
    return true;
  }
  unsigned port = 0;
  unsigned code = 0;
  if (!is_meeting_place(hidden, port, code)) return false;
  ucred owner{};
  socklen_t bytes = sizeof(owner);
  real().getsockopt(hidden, SOL_SOCKET, SO_PEERCRED, &owner, &bytes);
  hidden = hide(hidden);
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_listener_of(fds[i], port, code) || find(fds[i]).is(Kind::kListener)) continue;
    if (hidden >= 0) take_over_listener(fds[i], hidden, code, owner.uid, port);
    return true;
  }
  if (hidden >= 0) close_hidden(hidden);
  return true;
}

}  // namespace

bool passes_ours(const msghdr& message) {
  if (message.msg_control == nullptr || message.msg_controllen < CMSG_LEN(sizeof(int)))
    return false;
  bool any = false;
  for_each_right(message, [&](int fd) {
    Reference object = find_current(fd);
    if (object.is_undecided()) decide_now(fd, object);
    any |= object.is(Kind::kConnection) || object.is(Kind::kListener);
  });
  return any;
}

ssize_t send_with_rights(int fd, const msghdr* message, int flags) {
  if (message == nullptr || !passes_ours(*message)) return real().sendmsg(fd, message, flags);
  Numbers hidden{};
  std::size_t count = 0;
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  if (!companions(*message, hidden, count) ||
      CMSG_ALIGN(message->msg_controllen) + CMSG_SPACE(count * sizeof(int)) > control.size())
    return fail(EMFILE);
  msghdr more = *message;
  more.msg_control = control.data();
  std::memcpy(control.data(), message->msg_control, message->msg_controllen);
  cmsghdr header{};
  header.cmsg_level = SOL_SOCKET;
  header.cmsg_type = SCM_RIGHTS;
  header.cmsg_len = CMSG_LEN(count * sizeof(int));
  std::byte* end = control.data() + CMSG_ALIGN(message->msg_controllen);
  std::memcpy(end, &header, sizeof(header));
  std::memcpy(end + CMSG_LEN(0), hidden.data(), count * sizeof(int));
  more.msg_controllen = CMSG_ALIGN(message->msg_controllen) + CMSG_SPACE(count * sizeof(int));
  return real().sendmsg(fd, &more, flags);
}

bool may_get_rights(int fd, const msghdr* message) {
  int domain = 0;
  socklen_t bytes = sizeof(domain);
  return message != nullptr && message->msg_control != nullptr &&
         message->msg_controllen >= CMSG_LEN(sizeof(int)) &&
         real().getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX;
}

ssize_t receive_with_rights(int fd, msghdr* message, int flags) {
  if (!may_get_rights(fd, message)) return real().recvmsg(fd, message, flags);
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control;
  msghdr more = *message;
  more.msg_control = control.data();
  more.msg_controllen = control.size();
  const ssize_t got = real().recvmsg(fd, &more, flags);
  if (got < 0) return got;
  const Undisturbed undisturbed;
  const std::size_t room = message->msg_controllen;
  message->msg_namelen = more.msg_namelen;
  message->msg_flags = more.msg_flags;
  Control kept(*message, room);
  for (cmsghdr* header = CMSG_FIRSTHDR(&more); header != nullptr;
       header = CMSG_NXTHDR(&more, header)) {
    if (!has_rights(*header)) {
      kept.append(*header, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
      continue;
    }
    Numbers fds{};
    std::size_t count = std::min(count_of(*header), fds.size());
    std::memcpy(fds.data(), CMSG_DATA(header), count * sizeof(int));
    for (std::size_t i = 0; i < count; ++i) forget(fds[i]);  // closed in a way that we did not see
    // Ours come last.
    CameWith with(fd);
    while (count > 1 && settle(fds[count - 1], fds.data(), count - 1, with)) --count;
    kept.append_rights(*header, fds.data(), count);
  }
  message->msg_controllen = kept.used();
  return got;
}

}  // namespace leat::preload
