// leat/c.h: options, fcntl and ioctl.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstring>

#include "capi/call.h"
#include "capi/descriptors.h"
#include "leat/c.h"
#include "posix/options.h"

using namespace leat::detail;
using namespace leat::detail::c;

namespace {

namespace posix = leat::posix;

bool is_no_delay(int level, int option) { return level == IPPROTO_TCP && option == TCP_NODELAY; }

// Null: another option.
int Handle::Watch::*watch_option(int level, int option) {
  if (level == SOL_SOCKET && option == SO_KEEPALIVE) return &Handle::Watch::keep_alive;
  if (level != IPPROTO_TCP) return nullptr;
  switch (option) {
    case TCP_KEEPIDLE:
      return &Handle::Watch::idle;
    case TCP_KEEPINTVL:
      return &Handle::Watch::interval;
    case TCP_KEEPCNT:
      return &Handle::Watch::count;
    default:
      return nullptr;
  }
}

long set_option(Handle& handle, int level, int option, const void* value, socklen_t bytes) {
  if (const int refused = posix::refuses_option(level, option); refused != 0) return refused;
  if (level == IPPROTO_TCP && option == TCP_FASTOPEN_CONNECT) return -EOPNOTSUPP;
  const bool was_on = is_no_delay(level, option) && handle.connection() != nullptr;
  if (const long result = result_of(setsockopt(handle.socket(), level, option, value, bytes));
      result < 0)
    return result;
  const auto number = [&] {
    int given = 0;
    std::memcpy(&given, value, sizeof given);  // the kernel has accepted so many bytes
    return given;
  };
  if (const auto watched = watch_option(level, option); watched != nullptr)
    handle.want_watch(watched, number());
  if (is_no_delay(level, option)) {
    handle.set_no_delay(number() != 0 ? 1 : 0);
    // Where the connection beside carries the bytes, transport tcp, they go at once as well.
    const int always = 1;
    if (was_on) setsockopt(handle.socket(), level, option, &always, sizeof always);
  }
  if (level == SOL_SOCKET && (option == SO_RCVTIMEO || option == SO_SNDTIMEO))
    handle.read_timeouts();
  return 0;
}

long get_option(Handle& handle, int level, int option, void* value, socklen_t* bytes) {
  if (level == SOL_SOCKET && option == SO_ERROR)
    return posix::give_int(handle.take_error(), value, bytes);
  if (is_no_delay(level, option)) return posix::give_int(handle.no_delay(), value, bytes);
  if (const auto watched = watch_option(level, option); watched != nullptr && handle.connecting())
    return posix::give_int(handle.wanted_watch().*watched, value, bytes);
  const long result = result_of(getsockopt(handle.socket(), level, option, value, bytes));
  StreamEnd* const connection = handle.connection();
  if (result == 0 && level == IPPROTO_TCP && option == TCP_INFO && connection != nullptr) {
    connection->mask(true);
    posix::put_tcp_state(connection->tcp_state(), value, *bytes);
  }
  return result;
}

long control(Handle& handle, int number, int command, long argument) {
  switch (command) {
    case F_GETFL:
      return O_RDWR | (handle.nonblocking() ? O_NONBLOCK : 0);
    case F_SETFL:
      handle.set_nonblocking((argument & O_NONBLOCK) != 0);
      return 0;
    case F_GETFD:
    case F_SETFD:
      return result_of(fcntl(number, command, argument));
    case F_DUPFD:
    case F_DUPFD_CLOEXEC:
      return duplicate(number, static_cast<int>(argument), command == F_DUPFD_CLOEXEC);
    default:
      return -EINVAL;
  }
}

}  // namespace

int leat_setsockopt(int number, int level, int option, const void* value, socklen_t bytes) {
  return with_handle(
      "leat_setsockopt", number,
      [&](Handle& handle) { return set_option(handle, level, option, value, bytes); },
      [&] { return ::setsockopt(number, level, option, value, bytes); });
}

int leat_getsockopt(int number, int level, int option, void* value, socklen_t* bytes) {
  return with_handle(
      "leat_getsockopt", number,
      [&](Handle& handle) { return get_option(handle, level, option, value, bytes); },
      [&] { return ::getsockopt(number, level, option, value, bytes); });
}

int leat_fcntl(int number, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long argument = va_arg(arguments, long);  // as wide as any that fcntl takes
  va_end(arguments);
  return static_cast<int>(called("leat_fcntl", [&]() -> long {
    const Described described = find(number);
    if (described.handle != nullptr) return control(*described.handle, number, command, argument);
    if (described.epoll != nullptr && (command == F_DUPFD || command == F_DUPFD_CLOEXEC))
      return duplicate(number, static_cast<int>(argument), command == F_DUPFD_CLOEXEC);
    return result_of(::fcntl(number, command, argument));
  }));
}

int leat_ioctl(int number, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return static_cast<int>(called("leat_ioctl", [&]() -> long {
    const auto handle = find_handle(number);
    if (handle == nullptr) return result_of(::ioctl(number, request, argument));
    if (argument == nullptr) return -EFAULT;
    int value = 0;
    switch (request) {
      case FIONBIO:
        std::memcpy(&value, argument, sizeof value);
        handle->set_nonblocking(value != 0);
        return 0;
      case FIONREAD:
        if (StreamEnd* connection = handle->connection(); connection != nullptr) {
          value = static_cast<int>(std::min<std::size_t>(connection->readable_bytes(), INT_MAX));
          std::memcpy(argument, &value, sizeof value);
          return 0;
        }
        [[fallthrough]];
      default:
        return result_of(::ioctl(handle->socket(), request, argument));
    }
  }));
}

int leat_set_nonblocking(int number, int on) {
  return static_cast<int>(called("leat_set_nonblocking", [&]() -> long {
    const auto handle = find_handle(number);
    if (handle == nullptr) return -EBADF;
    handle->set_nonblocking(on != 0);
    return 0;
  }));
}
