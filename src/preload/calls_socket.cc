// Making connections, closing them, and their options.
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstring>

#include "posix/options.h"
#include "preload/call.h"
#include "preload/configuration.h"
#include "preload/epoll_set.h"
#include "preload/hidden.h"
#include "preload/listener.h"
#include "preload/socket_facts.h"

namespace leat::preload {
namespace {

int accept_one(int fd, sockaddr* address, socklen_t* bytes, int flags) {
  // Whether the number still means that listener is asked once a connection has come that it may
  // carry.
  Reference known = find(fd);
  if (known && !known.is(Kind::kListener)) known = find_current(fd);
  if (!known) {
    find_listener(fd);
    known = find(fd);
  }
  if (!known.is(Kind::kListener)) {
    const int accepted = real().accept4(fd, address, bytes, flags);
    if (accepted >= 0) forget_stale(accepted);
    return accepted;
  }
  for (;;) {
    if (!keep_spare_numbers() && is_current(fd, *known)) return fail(EMFILE);
    // Of one that was reset meanwhile nothing else tells the address.
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    const int accepted = real().accept4(fd, reinterpret_cast<sockaddr*>(&peer), &size, flags);
    if (accepted < 0) return accepted;
    forget_stale(accepted);
    make_room_after(accepted);
    // Also if it was closed meanwhile: it is open as long as this call.
    if (!after_accept(known, fd, accepted, peer)) {
      real().close(accepted);  // memory has run out
      continue;
    }
    if (address != nullptr && bytes != nullptr) {
      std::memcpy(address, &peer, std::min(*bytes, size));
      *bytes = size;
    }
    return accepted;
  }
}

// connect() to no address: resets the connection; the socket then behaves like a new one.
int dissolve(int fd, const Reference& object, const sockaddr* address, socklen_t bytes) {
  Connection& connection = object->connection;
  const bool over = connection.is_over(fd);
  connection.shown().aborts.store(1, std::memory_order_release);
  connection.note_closing(fd, false);
  // Before the kernel wakes the sleepers here. The barrier is the system call.
  connection.own().tcp.flags.fetch_or(kDissolved, std::memory_order_release);
  const int result = real().connect(fd, address, bytes);
  if (result != 0) return result;
  // TCP resets nothing that is over, where the kernel's own connection may have stood.
  if (over && connection.own().tcp.take_error() != ECONNRESET) option(fd, SOL_SOCKET, SO_ERROR);
  connection.own().tcp.dissolve(over);
  const Reference socket = add(fd, Kind::kSocket);
  for_each(0, highest_known(), [&](int known, const Reference& other) {
    if (other.get() == object.get()) add_duplicate(fd, known);
  });
  if (socket) {
    EpollSet::connection_is_dissolved(object.get(), socket);
  } else {
    EpollSet::note_missed();  // memory has run out: it is the kernel's alone, and in no set
  }
  return 0;
}

// The peer's address, which the kernel no longer reports if its own connection was reset because
// the peer left doorbells unread; the carried one has ended in order.
int tell_peer(int fd, const Connection& connection, sockaddr* address, socklen_t* bytes) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return -1;
  if (address == nullptr || bytes == nullptr || *bytes > INT_MAX) {
    errno = address == nullptr || bytes == nullptr ? EFAULT : EINVAL;
    return -1;
  }
  connection.peer_address().put_into(storage);
  std::memcpy(address, &storage, std::min(*bytes, size));
  *bytes = size;
  return 0;
}

int told(int result) { return static_cast<int>(result_of(result)); }

int keep(Connection& connection, std::uint32_t flag, const void* value, socklen_t bytes) {
  int set = 0;
  if (const int bad = posix::get_int(value, bytes, set); bad != 0) return told(bad);
  auto& flags = connection.own().tcp.flags;
  if (set != 0) {
    flags.fetch_or(flag, std::memory_order_relaxed);
  } else {
    flags.fetch_and(~flag, std::memory_order_relaxed);
  }
  return 0;
}

// The kernel's own says to connectors that the listener is under leat-run.
int keep_max_segment(Object& listener, const void* value, socklen_t bytes) {
  constexpr int kLeast = 88;
  constexpr int kMost = 32767;
  int wanted = 0;
  if (const int bad = posix::get_int(value, bytes, wanted); bad != 0) return told(bad);
  if (wanted != 0 && (wanted < kLeast || wanted > kMost)) return fail(EINVAL);
  // What the kernel tells where none is set.
  listener.max_segment.store(wanted != 0 ? wanted : TCP_MSS_DEFAULT, std::memory_order_relaxed);
  return 0;
}

bool sets_buffer(int name) {
  return name == SO_SNDBUF || name == SO_RCVBUF || name == SO_SNDBUFFORCE ||
         name == SO_RCVBUFFORCE || name == SO_BUF_LOCK;
}

void keep_linger(Connection& connection, const void* value, socklen_t bytes) {
  linger time{};
  if (bytes < sizeof(time)) return;
  std::memcpy(&time, value, sizeof(time));
  connection.shown().aborts.store(time.l_onoff != 0 && time.l_linger == 0 ? 1 : 0,
                                  std::memory_order_relaxed);
}

}  // namespace
}  // namespace leat::preload

using namespace leat::preload;  // NOLINT: the functions below are C's

// The C library's headers call the parameters otherwise.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)

LEAT_CALL int socket(int domain, int type, int protocol) noexcept {
  const int fd = real().socket(domain, type, protocol);
  if (fd < 0) return fd;
  forget_stale(fd);
  make_room_after(fd);
  return fd;
}

LEAT_CALL int listen(int fd, int backlog) noexcept {
  Reference socket = find_current(fd);
  const bool marked = before_listen(fd, socket);
  const int result = real().listen(fd, backlog);
  if (result == 0 && marked) after_listen(fd, socket, backlog);
  if (result == 0 && !marked && socket.is(Kind::kListener)) listens_again(fd, *socket, backlog);
  return result;
}

LEAT_CALL int accept(int fd, sockaddr* address, socklen_t* bytes) {
  return accept_one(fd, address, bytes, 0);
}

LEAT_CALL int accept4(int fd, sockaddr* address, socklen_t* bytes, int flags) {
  return accept_one(fd, address, bytes, flags);
}

LEAT_CALL int connect(int fd, const sockaddr* address, socklen_t bytes) {
  Reference socket = find_current(fd);
  if (socket.is(Kind::kConnection) && address != nullptr && bytes >= sizeof(sa_family_t) &&
      address->sa_family == AF_UNSPEC)
    return dissolve(fd, socket, address, bytes);
  const bool marked = before_connect(fd, socket, address, bytes);
  // Before the kernel has connected it: from then on another thread, or the handler of a signal,
  // may send, and no byte may go to the kernel. Relaxed: comes with the release.
  if (marked) {
    socket->in_connect.store(true, std::memory_order_relaxed);
    socket->connecting.store(true, std::memory_order_release);
  }
  const int result = real().connect(fd, address, bytes);
  if (marked) {
    socket->in_connect.store(false, std::memory_order_relaxed);
    if (result != 0 && errno != EINPROGRESS && errno != EINTR && socket.is(Kind::kSocket))
      socket->connecting.store(false, std::memory_order_release);
  }
  if (socket.is_undecided()) decide(fd, socket);
  return result;
}

LEAT_CALL int shutdown(int fd, int how) noexcept {
  if (Reference socket = find_current(fd); socket.awaits_offer() && how >= SHUT_RD &&
                                           how <= SHUT_RDWR && shut_undecided(fd, socket, how))
    return 0;
  const Reference object = known_carried(fd);
  if (!object || how < SHUT_RD || how > SHUT_RDWR) return real().shutdown(fd, how);
  if (object->connection.is_over(fd)) {
    // Sets of epoll hear of it all the same. Release: as in Connection::shutdown().
    object->connection.own().shutdowns.fetch_add(1, std::memory_order_release);
    errno = ENOTCONN;
    return -1;
  }
  object->connection.shutdown(fd, how);
  return 0;
}

LEAT_CALL int getpeername(int fd, sockaddr* address, socklen_t* bytes) noexcept {
  const Reference object = known_carried(fd);
  if (object && object->connection.is_over(fd)) return fail(ENOTCONN);
  const int result = real().getpeername(fd, address, bytes);
  if (result == 0 || !object || errno != ENOTCONN) return result;
  return tell_peer(fd, object->connection, address, bytes);
}

LEAT_CALL int getsockopt(int fd, int level, int name, void* value, socklen_t* bytes) noexcept {
  const Reference known = find_current(fd);
  if (known.is(Kind::kListener)) {
    const int size = known->receive_buffer.load();
    if (size > 0 && level == SOL_SOCKET && name == SO_RCVBUF)
      return told(posix::give_int(2 * size, value, bytes));  // as the kernel tells it
    if (level == IPPROTO_TCP && (name == TCP_DEFER_ACCEPT || name == TCP_MAXSEG)) {
      const std::atomic<int>& kept = name == TCP_MAXSEG ? known->max_segment : known->deferred;
      return told(posix::give_int(kept.load(std::memory_order_relaxed), value, bytes));
    }
  }
  const Reference object = known_carried(fd);
  if (!object || value == nullptr || bytes == nullptr)
    return real().getsockopt(fd, level, name, value, bytes);
  Connection& connection = object->connection;
  if (level == IPPROTO_TCP && (name == TCP_NODELAY || name == TCP_CORK)) {
    const bool set = connection.own().tcp.has(name == TCP_CORK ? kCork : kNoDelay);
    return told(posix::give_int(set ? 1 : 0, value, bytes));
  }
  if (level == SOL_SOCKET && name == SO_ERROR)
    return told(posix::give_int(connection.take_error(fd), value, bytes));
  const int result = real().getsockopt(fd, level, name, value, bytes);
  if (result == 0 && level == IPPROTO_TCP && name == TCP_INFO)
    posix::put_tcp_state(connection.tcp_state(fd), value, *bytes);
  return result;
}

LEAT_CALL int setsockopt(int fd, int level, int name, const void* value, socklen_t bytes) noexcept {
  const Reference known = find_current(fd);
  if (known.is(Kind::kListener) && level == SOL_SOCKET && name == SO_RCVBUF &&
      bytes >= sizeof(int)) {
    // For what is accepted: with a smaller window the listener could not tell what it is.
    int size = 0;
    std::memcpy(&size, value, sizeof(size));
    known->receive_buffer.store(size, std::memory_order_relaxed);
    return 0;
  }
  if (known.is(Kind::kListener) && level == IPPROTO_TCP && name == TCP_DEFER_ACCEPT) {
    const int result = real().setsockopt(fd, level, name, value, bytes);
    if (result == 0) keep_deferred(fd, *known);
    return result;
  }
  if (known.is(Kind::kListener) && level == IPPROTO_TCP && name == TCP_MAXSEG)
    return keep_max_segment(*known, value, bytes);
  const Reference object = known_carried(fd);
  if (!object) return real().setsockopt(fd, level, name, value, bytes);
  Connection& connection = object->connection;
  if (level == IPPROTO_TCP && (name == TCP_NODELAY || name == TCP_CORK))
    return keep(connection, name == TCP_CORK ? kCork : kNoDelay, value, bytes);
  if (const int refused = posix::refuses_option(level, name); refused != 0) return told(refused);
  if (level == SOL_SOCKET && name == SO_RCVLOWAT) return 0;
  const int result = real().setsockopt(fd, level, name, value, bytes);
  if (result == 0 && level == SOL_SOCKET && name == SO_LINGER)
    keep_linger(connection, value, bytes);
  if (result == 0 && level == SOL_SOCKET && sets_buffer(name)) {
    const Buffers buffers = program_buffers(fd);
    connection.set_buffers(buffers.send, buffers.receive);
  }
  return result;
}

LEAT_CALL int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  const Reference object = known_carried(fd);
  if (request == FIONREAD && find(fd).awaits_offer()) {
    *static_cast<int*>(argument) = 0;
    return 0;
  }
  if (object && request == FIONREAD) {
    *static_cast<int*>(argument) = static_cast<int>(object->connection.readable_bytes());
    return 0;
  }
  if (object && (request == SIOCOUTQ || request == SIOCOUTQNSD)) {
    *static_cast<int*>(argument) = static_cast<int>(object->connection.unread_by_peer());
    return 0;
  }
  return real().ioctl(fd, request, argument);
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
