// leat/c.h: sending and receiving.
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>

#include "leat/c.h"
#include "socket/c/buffers.h"
#include "socket/c/call.h"
#include "socket/c/descriptors.h"
#include "socket/c/waiting.h"

using namespace leat::detail;
using namespace leat::detail::c;

namespace {

constexpr int kRefusedFlags = MSG_OOB | MSG_ERRQUEUE | MSG_FASTOPEN | MSG_ZEROCOPY;

// A flag of our own, in the place of MSG_CMSG_CLOEXEC, which has no meaning for streams: read and
// readv return at once for nothing.
constexpr int kAsRead = MSG_CMSG_CLOEXEC;

// The connection of a handle that may still be connecting: null with `error` if it has none.
StreamEnd* connection_of(Handle& handle, int flags, Deadline deadline, int& error) {
  for (;;) {
    if (StreamEnd* connection = handle.connection(); connection != nullptr) [[likely]]
      return connection;
    if (!handle.connecting()) {
      error = -handle.handshake_error();
      return nullptr;
    }
    error = -EAGAIN;
    if ((flags & MSG_DONTWAIT) != 0 || handle.nonblocking()) return nullptr;
    error = wait_for(handle, POLLOUT, deadline);
    if (error < 0) return nullptr;
  }
}

long send_to(Handle& handle, std::span<const iovec> parts, int flags) {
  if ((flags & kRefusedFlags) != 0) return -EOPNOTSUPP;
  const Deadline deadline = handle.send_deadline();
  int error = 0;
  StreamEnd* connection = connection_of(handle, flags, deadline, error);
  if (connection == nullptr) {
    if (error != 0) return error;
    // What the kernel says of a socket that is not connected.
    const msghdr empty{};
    return sendmsg(handle.socket(), &empty, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : -ENOTCONN;
  }
  Buffers left(parts);
  const auto total = static_cast<long>(left.left());
  const auto sent = [&] { return total - static_cast<long>(left.left()); };
  const auto or_sent = [&](int other) { return sent() > 0 ? sent() : other; };
  for (;;) {
    const int state = connection->send_state(sent() > 0);
    if (state < 0) return or_sent(state);
    if (state > 0) {
      if (total != 0) connection->sent_to_nobody();
      return total;
    }
    connection->put(left);
    const bool waits = (flags & MSG_DONTWAIT) == 0 && !handle.nonblocking();
    if (left.left() == 0 && (!waits || connection->flushed())) return total;
    if (connection->sending_ended()) continue;
    if (!waits) return or_sent(-EAGAIN);
    if (const int waited = wait_for(handle, POLLOUT, deadline, sent() > 0); waited < 0)
      return or_sent(waited);
  }
}

// For who peeks until there is enough, which no descriptor tells.
int wait_for_more(Handle& handle, StreamEnd& connection, std::size_t bytes, Deadline deadline) {
  sigset_t signals;
  pthread_sigmask(SIG_SETMASK, nullptr, &signals);
  while (connection.readable_bytes() <= bytes && !connection.ended()) {
    if (passed(deadline)) return -EAGAIN;
    handle.mask(true);
    const auto nap = std::min(deadline, Clock::now() + std::chrono::milliseconds(1));
    if (const int result = sleep_in_kernel({}, nap, signals); result < 0) return result;
  }
  return 1;
}

long receive_from(Handle& handle, std::span<const iovec> parts, int flags) {
  if ((flags & kRefusedFlags) != 0) return -EOPNOTSUPP;
  const Deadline deadline = handle.receive_deadline();
  int error = 0;
  StreamEnd* connection = connection_of(handle, flags, deadline, error);
  if (connection == nullptr) {
    if (error != 0) return error;
    char byte = 0;
    const ssize_t got = recv(handle.socket(), &byte, 1, MSG_DONTWAIT);
    return got < 0 ? -errno : got;
  }
  const bool peek = (flags & MSG_PEEK) != 0;
  Buffers left(parts);
  const std::size_t wanted = left.left();
  if (wanted == 0 && (flags & kAsRead) != 0) return 0;
  std::size_t total = 0;
  for (;;) {
    if (peek) {
      left = Buffers(parts);
      total = 0;
    }
    total += connection->take(left, peek, (flags & MSG_TRUNC) != 0);
    if (total != 0 && (total == wanted || (flags & MSG_WAITALL) == 0))
      return static_cast<long>(total);
    // For nothing TCP waits until there is something.
    if (wanted == 0 && connection->readable_bytes() != 0) return 0;
    const auto or_total = [&](long other) { return total != 0 ? static_cast<long>(total) : other; };
    if (total == 0 || !peek) {
      const int state = total == 0 ? connection->receive_state() : connection->ended() ? 1 : 0;
      if (state != 0) return or_total(state > 0 ? 0 : state);
    } else if (connection->ended()) {
      return static_cast<long>(total);
    }
    if ((flags & MSG_DONTWAIT) != 0 || handle.nonblocking()) {
      // Also sees what only a closer look sees, and has the handle readable when there is more.
      if ((handle.mask(true) & (POLLIN | POLLERR)) != 0 && total == 0) continue;
      return or_total(-EAGAIN);
    }
    const int waited = peek && total != 0 ? wait_for_more(handle, *connection, total, deadline)
                                          : wait_for(handle, POLLIN, deadline, total != 0);
    if (waited < 0) return or_total(waited);
  }
}

// As the kernel does: to this thread.
long with_sigpipe(long result, int flags) {
  if (result == -EPIPE && (flags & MSG_NOSIGNAL) == 0) pthread_kill(pthread_self(), SIGPIPE);
  return result;
}

// -EFAULT, -EINVAL: what the kernel says of such memory.
int check_parts(const iovec* parts, std::size_t count, int too_many, bool touched) {
  if (count > IOV_MAX) return -too_many;
  if (parts == nullptr && count != 0) return -EFAULT;
  std::size_t total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (parts[i].iov_len > SSIZE_MAX - total) return -EINVAL;
    if (touched && parts[i].iov_base == nullptr && parts[i].iov_len != 0) return -EFAULT;
    total += parts[i].iov_len;
  }
  return 0;
}

template <typename Other>
ssize_t transfer(const char* name, int number, const iovec* parts, std::size_t count, int flags,
                 bool sends, int too_many, Other&& other) {
  return called(name, [&]() -> long {
    const auto handle = find_handle(number);
    if (handle == nullptr) {
      const ssize_t result = other();
      return result < 0 ? -errno : result;
    }
    const bool touched = sends || (flags & MSG_TRUNC) == 0;
    if (const int bad = check_parts(parts, count, too_many, touched); bad != 0) return bad;
    return sends ? with_sigpipe(send_to(*handle, {parts, count}, flags), flags)
                 : receive_from(*handle, {parts, count}, flags);
  });
}

iovec part_of(const void* data, std::size_t bytes) { return {const_cast<void*>(data), bytes}; }

}  // namespace

ssize_t leat_send(int number, const void* data, size_t bytes, int flags) {
  const iovec part = part_of(data, bytes);
  return transfer("leat_send", number, &part, 1, flags, true, EINVAL,
                  [&] { return ::send(number, data, bytes, flags); });
}

ssize_t leat_sendto(int number, const void* data, size_t bytes, int flags, const sockaddr* address,
                    socklen_t address_bytes) {
  const iovec part = part_of(data, bytes);
  return transfer("leat_sendto", number, &part, 1, flags, true, EINVAL,
                  [&] { return ::sendto(number, data, bytes, flags, address, address_bytes); });
}

ssize_t leat_sendmsg(int number, const msghdr* message, int flags) {
  const msghdr none{};
  const msghdr& given = message != nullptr ? *message : none;
  return transfer("leat_sendmsg", number, given.msg_iov, given.msg_iovlen, flags, true, EMSGSIZE,
                  [&] { return ::sendmsg(number, message, flags); });
}

ssize_t leat_write(int number, const void* data, size_t bytes) {
  const iovec part = part_of(data, bytes);
  return transfer("leat_write", number, &part, 1, 0, true, EINVAL,
                  [&] { return ::write(number, data, bytes); });
}

ssize_t leat_writev(int number, const iovec* parts, int count) {
  return transfer("leat_writev", number, parts, static_cast<std::size_t>(count), 0, true, EINVAL,
                  [&] { return ::writev(number, parts, count); });
}

ssize_t leat_recv(int number, void* data, size_t bytes, int flags) {
  const iovec part = part_of(data, bytes);
  return transfer("leat_recv", number, &part, 1, flags, false, EINVAL,
                  [&] { return ::recv(number, data, bytes, flags); });
}

ssize_t leat_recvfrom(int number, void* data, size_t bytes, int flags, sockaddr* address,
                      socklen_t* address_bytes) {
  const iovec part = part_of(data, bytes);
  const ssize_t got = transfer("leat_recvfrom", number, &part, 1, flags, false, EINVAL, [&] {
    return ::recvfrom(number, data, bytes, flags, address, address_bytes);
  });
  if (got >= 0 && address != nullptr && address_bytes != nullptr && find_handle(number) != nullptr)
    *address_bytes = 0;
  return got;
}

ssize_t leat_recvmsg(int number, msghdr* message, int flags) {
  const msghdr none{};
  const msghdr& given = message != nullptr ? *message : none;
  const ssize_t got = transfer("leat_recvmsg", number, given.msg_iov, given.msg_iovlen, flags,
                               false, EMSGSIZE, [&] { return ::recvmsg(number, message, flags); });
  if (got >= 0 && message != nullptr && find_handle(number) != nullptr) {
    message->msg_namelen = 0;
    message->msg_controllen = 0;
    message->msg_flags = 0;
  }
  return got;
}

ssize_t leat_read(int number, void* data, size_t bytes) {
  const iovec part = part_of(data, bytes);
  return transfer("leat_read", number, &part, 1, kAsRead, false, EINVAL,
                  [&] { return ::read(number, data, bytes); });
}

ssize_t leat_readv(int number, const iovec* parts, int count) {
  return transfer("leat_readv", number, parts, static_cast<std::size_t>(count), kAsRead, false,
                  EINVAL, [&] { return ::readv(number, parts, count); });
}
