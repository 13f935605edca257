// leat/c.h: sending and receiving.
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>

#include "capi/call.h"
#include "capi/descriptors.h"
#include "capi/waiting.h"
#include "leat/c.h"
#include "posix/stream_calls.h"

using namespace leat::detail;
using namespace leat::detail::c;

namespace {

namespace posix = leat::posix;

constexpr int kRefusedFlags = MSG_OOB | MSG_ERRQUEUE | MSG_FASTOPEN | MSG_ZEROCOPY;

// A flag of our own, in the place of MSG_CMSG_CLOEXEC, which has no meaning for streams: read,
// readv and writev return at once for nothing.
constexpr int kAtOnce = MSG_CMSG_CLOEXEC;

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

// One call at a connected handle: an End of posix/stream_calls.h.
class HandleCall {
 public:
  HandleCall(Handle& handle, StreamEnd& connection, Deadline deadline)
      : handle_(handle), connection_(connection), deadline_(deadline) {}

  std::size_t readable_bytes() { return connection_.readable_bytes(); }
  static std::size_t most_unread() { return SIZE_MAX; }
  bool nothing_follows() const { return connection_.ended(); }
  long take(posix::Buffers& to, bool peek) { return static_cast<long>(connection_.take(to, peek)); }
  long put(posix::Buffers& from) { return static_cast<long>(connection_.put(from)); }
  int receive_state(bool begun) { return connection_.receive_state(begun); }
  int send_state(bool begun) { return connection_.send_state(begun); }
  bool sending_ended() const { return connection_.sending_ended(); }
  bool flushed() { return connection_.flushed(); }
  void drop(std::size_t bytes) {
    if (bytes != 0) connection_.sent_to_nobody();
  }
  bool blocks(int flags) const { return (flags & MSG_DONTWAIT) == 0 && !handle_.nonblocking(); }
  // And has the handle readable when there is more.
  bool look_closely() { return (handle_.mask(true) & (POLLIN | POLLERR)) != 0; }
  int wait_to_receive(std::size_t bytes, bool some) {
    return bytes > 1 ? wait_for_more(bytes) : wait(POLLIN, some);
  }
  int wait_to_send(std::size_t, bool some) { return wait(POLLOUT, some); }

 private:
  int wait(unsigned events, bool some) {
    return std::max(0, -wait_for(handle_, events, deadline_, some));
  }

  // For a caller that peeks until there is enough: no descriptor reports that.
  int wait_for_more(std::size_t bytes) {
    sigset_t signals;
    pthread_sigmask(SIG_SETMASK, nullptr, &signals);
    while (connection_.readable_bytes() < bytes && !connection_.ended()) {
      if (passed(deadline_)) return EAGAIN;
      handle_.mask(true);
      const auto nap = std::min(deadline_, Clock::now() + std::chrono::milliseconds(1));
      if (const int result = sleep_in_kernel({}, nap, signals); result < 0) return -result;
    }
    return 0;
  }

  Handle& handle_;
  StreamEnd& connection_;
  const Deadline deadline_;
};

long send_to(Handle& handle, const posix::Buffers& from, int flags) {
  const Deadline deadline = handle.send_deadline();
  int error = 0;
  StreamEnd* connection = connection_of(handle, flags, deadline, error);
  if (connection != nullptr) {
    HandleCall call(handle, *connection, deadline);
    return posix::send(call, from, flags);
  }
  if (error != 0) return error;
  // What the kernel says of a socket that is not connected.
  const msghdr empty{};
  const long said = result_of(sendmsg(handle.socket(), &empty, flags | MSG_DONTWAIT));
  return said < 0 ? said : -ENOTCONN;
}

long receive_from(Handle& handle, const posix::Buffers& to, int flags) {
  const Deadline deadline = handle.receive_deadline();
  int error = 0;
  StreamEnd* connection = connection_of(handle, flags, deadline, error);
  if (connection != nullptr) {
    HandleCall call(handle, *connection, deadline);
    return posix::receive(call, to, flags);
  }
  if (error != 0) return error;
  char byte = 0;
  return result_of(recv(handle.socket(), &byte, 1, MSG_DONTWAIT));
}

// `refused`: -errno of what is wrong with the parts, or 0. `other`: what the kernel gives for a
// descriptor that leat does not know.
template <typename Other>
ssize_t transfer(const char* name, int number, int refused, const iovec* parts, std::size_t count,
                 int flags, bool sends, Other&& other) {
  return called(name, [&]() -> long {
    const auto handle = find_handle(number);
    if (handle == nullptr) return result_of(other());
    if (refused != 0) return refused;
    if ((flags & kAtOnce) != 0 && posix::holds_nothing(parts, count)) return 0;
    if ((flags & kRefusedFlags) != 0) return -EOPNOTSUPP;
    const posix::Buffers buffers(parts, count, !sends && (flags & MSG_TRUNC) != 0);
    if (buffers.refused() != 0) return buffers.refused();
    return sends ? send_to(*handle, buffers, flags & ~kAtOnce)
                 : receive_from(*handle, buffers, flags & ~kAtOnce);
  });
}

iovec part_of(const void* data, std::size_t bytes) { return posix::one_part(data, bytes); }

}  // namespace

ssize_t leat_send(int number, const void* data, size_t bytes, int flags) {
  const iovec part = part_of(data, bytes);
  return transfer("leat_send", number, 0, &part, 1, flags, true,
                  [&] { return ::send(number, data, bytes, flags); });
}

ssize_t leat_sendto(int number, const void* data, size_t bytes, int flags, const sockaddr* address,
                    socklen_t address_bytes) {
  const iovec part = part_of(data, bytes);
  return transfer("leat_sendto", number, 0, &part, 1, flags, true,
                  [&] { return ::sendto(number, data, bytes, flags, address, address_bytes); });
}

ssize_t leat_sendmsg(int number, const msghdr* message, int flags) {
  const int refused = posix::check_message(message);
  const msghdr given = refused == 0 ? *message : msghdr{};
  return transfer("leat_sendmsg", number, refused, given.msg_iov, given.msg_iovlen, flags, true,
                  [&] { return ::sendmsg(number, message, flags); });
}

ssize_t leat_write(int number, const void* data, size_t bytes) {
  const iovec part = part_of(data, bytes);
  return transfer("leat_write", number, 0, &part, 1, 0, true,
                  [&] { return ::write(number, data, bytes); });
}

ssize_t leat_writev(int number, const iovec* parts, int count) {
  const auto given = static_cast<std::size_t>(count);
  return transfer("leat_writev", number, posix::check_count(parts, given, EINVAL), parts, given,
                  kAtOnce, true, [&] { return ::writev(number, parts, count); });
}

ssize_t leat_recv(int number, void* data, size_t bytes, int flags) {
  const iovec part = part_of(data, bytes);
  return transfer("leat_recv", number, 0, &part, 1, flags, false,
                  [&] { return ::recv(number, data, bytes, flags); });
}

ssize_t leat_recvfrom(int number, void* data, size_t bytes, int flags, sockaddr* address,
                      socklen_t* address_bytes) {
  const iovec part = part_of(data, bytes);
  const ssize_t got = transfer("leat_recvfrom", number, 0, &part, 1, flags, false, [&] {
    return ::recvfrom(number, data, bytes, flags, address, address_bytes);
  });
  if (got >= 0 && address != nullptr && address_bytes != nullptr && find_handle(number) != nullptr)
    *address_bytes = 0;
  return got;
}

ssize_t leat_recvmsg(int number, msghdr* message, int flags) {
  const int refused = posix::check_message(message);
  const msghdr given = refused == 0 ? *message : msghdr{};
  const ssize_t got = transfer("leat_recvmsg", number, refused, given.msg_iov, given.msg_iovlen,
                               flags, false, [&] { return ::recvmsg(number, message, flags); });
  if (got >= 0 && find_handle(number) != nullptr) posix::no_control(*message, flags);
  return got;
}

ssize_t leat_read(int number, void* data, size_t bytes) {
  const iovec part = part_of(data, bytes);
  return transfer("leat_read", number, 0, &part, 1, kAtOnce, false,
                  [&] { return ::read(number, data, bytes); });
}

ssize_t leat_readv(int number, const iovec* parts, int count) {
  const auto given = static_cast<std::size_t>(count);
  return transfer("leat_readv", number, posix::check_count(parts, given, EINVAL), parts, given,
                  kAtOnce, false, [&] { return ::readv(number, parts, count); });
}
