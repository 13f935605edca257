// leat/c.h: making, naming and ending connections.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/settings.h"
#include "base/uri.h"
#include "capi/call.h"
#include "capi/descriptors.h"
#include "capi/waiting.h"
#include "leat/c.h"
#include "leat/version.h"
#include "net/tcp.h"

using namespace leat::detail;
using namespace leat::detail::c;

namespace {

constexpr int kTypeFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;

// A handle for a connection that has come to stand.
int add_connected(std::unique_ptr<ChannelCore> core, int flags,
                  const std::function<void(Handle&)>& prepare = {}) {
  Fd socket = one_more(core->connection().stream->fd());
  return NewDescriptor((flags & SOCK_CLOEXEC) != 0)
      .become_handle(std::move(socket), (flags & SOCK_NONBLOCK) != 0, [&](Handle& handle) {
        if (prepare) prepare(handle);
        handle.adopt(std::move(core));
      });
}

long accept_at(Handle& listening, sockaddr* address, socklen_t* bytes, int flags) {
  if ((flags & ~kTypeFlags) != 0) return -EINVAL;
  if (address != nullptr && bytes == nullptr) return -EFAULT;
  const Deadline deadline = listening.receive_deadline();
  for (;;) {
    int error = 0;
    auto core = listening.accept(error);
    if (core != nullptr) {
      // Not the channel's to close if there is no descriptor for it.
      const int peer = core->connection().stream->fd();
      const int number = add_connected(std::move(core), flags, [&](Handle& handle) {
        // As TCP's accepted sockets have them from their listener.
        handle.set_watch(listening.watch());
        handle.set_no_delay(listening.no_delay());
      });
      // Nobody, if it was reset already.
      if (address != nullptr && getpeername(peer, address, bytes) < 0) *bytes = 0;
      return number;
    }
    if (error != -EAGAIN || listening.nonblocking()) return error;
    if (const int waited = wait_for(listening, POLLIN, deadline); waited < 0) return waited;
  }
}

}  // namespace

int leat_socket(int family, int type, int protocol) {
  return static_cast<int>(called("leat_socket", [&]() -> long {
    // Its descriptor comes first: programs expect the lowest number.
    NewDescriptor descriptor((type & SOCK_CLOEXEC) != 0);
    Fd socket(::socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol));
    if (!socket) return -errno;
    if (family != AF_INET && family != AF_INET6) {
      explain("leat_socket: only AF_INET and AF_INET6");
      return -EAFNOSUPPORT;
    }
    if ((type & ~kTypeFlags) != SOCK_STREAM) {
      explain("leat_socket: only SOCK_STREAM");
      return -EPROTONOSUPPORT;
    }
    return descriptor.become_handle(std::move(socket), (type & SOCK_NONBLOCK) != 0);
  }));
}

int leat_bind(int number, const sockaddr* address, socklen_t bytes) {
  return with_handle(
      "leat_bind", number, [&](Handle& handle) { return handle.bind(address, bytes); },
      [&] { return ::bind(number, address, bytes); });
}

int leat_listen(int number, int backlog) {
  return with_handle(
      "leat_listen", number, [&](Handle& handle) { return handle.listen(backlog); },
      [&] { return ::listen(number, backlog); });
}

int leat_accept(int number, sockaddr* address, socklen_t* bytes) {
  return with_handle(
      "leat_accept", number, [&](Handle& handle) { return accept_at(handle, address, bytes, 0); },
      [&] { return ::accept(number, address, bytes); });
}

int leat_accept4(int number, sockaddr* address, socklen_t* bytes, int flags) {
  return with_handle(
      "leat_accept4", number,
      [&](Handle& handle) { return accept_at(handle, address, bytes, flags); },
      [&] { return ::accept4(number, address, bytes, flags); });
}

int leat_connect(int number, const sockaddr* address, socklen_t bytes) {
  return with_handle(
      "leat_connect", number,
      [&](Handle& handle) -> long {
        const int begun = handle.connect(address, bytes);
        if (begun != -EINPROGRESS || handle.nonblocking()) return begun;
        const int waited = wait_for(handle, POLLOUT, handle.send_deadline());
        if (waited < 0) return waited == -EAGAIN ? -EINPROGRESS : waited;
        return handle.connect_result();
      },
      [&] { return ::connect(number, address, bytes); });
}

int leat_connect_uri(const char* text) {
  return static_cast<int>(called("leat_connect_uri", [&]() -> long {
    if (text == nullptr) return -EFAULT;
    const Uri uri = parse_uri(text);
    const Settings settings = resolve_settings({}, uri.parameters);
    return add_connected(std::make_unique<ChannelCore>(open_connection(uri, settings), settings),
                         SOCK_CLOEXEC);
  }));
}

int leat_listen_uri(const char* text) {
  return static_cast<int>(called("leat_listen_uri", [&]() -> long {
    if (text == nullptr) return -EFAULT;
    const Uri uri = parse_uri(text);
    const Settings settings = resolve_settings({}, uri.parameters);
    check_settings(settings);
    auto listener = std::make_unique<ListenerCore>(uri, settings);
    Fd socket = one_more(listener->socket());
    return NewDescriptor(true).become_handle(
        std::move(socket), false, [&](Handle& handle) { handle.adopt(std::move(listener)); });
  }));
}

int leat_shutdown(int number, int how) {
  return with_handle(
      "leat_shutdown", number, [&](Handle& handle) { return handle.shutdown(how); },
      [&] { return ::shutdown(number, how); });
}

int leat_close(int number) {
  return static_cast<int>(called("leat_close", [&]() -> long {
    const int result = close_described(number);
    return result == -EBADF ? result_of(::close(number)) : result;
  }));
}

int leat_getsockname(int number, sockaddr* address, socklen_t* bytes) {
  return with_handle(
      "leat_getsockname", number,
      [&](Handle& handle) { return result_of(::getsockname(handle.socket(), address, bytes)); },
      [&] { return ::getsockname(number, address, bytes); });
}

int leat_getpeername(int number, sockaddr* address, socklen_t* bytes) {
  return with_handle(
      "leat_getpeername", number,
      [&](Handle& handle) -> long {
        StreamEnd* connection = handle.connection();
        if (connection == nullptr) return -ENOTCONN;
        if (connection->mask(false); connection->is_over()) return -ENOTCONN;
        return result_of(::getpeername(handle.socket(), address, bytes));
      },
      [&] { return ::getpeername(number, address, bytes); });
}

int leat_poll_fd(int number) {
  return static_cast<int>(called("leat_poll_fd", [&]() -> long {
    const Described described = find(number);
    if (described.handle == nullptr) return -EBADF;
    return number;
  }));
}

int leat_description(int number, char* text, size_t bytes) {
  return static_cast<int>(called("leat_description", [&]() -> long {
    const auto handle = find_handle(number);
    if (handle == nullptr) return -EBADF;
    StreamEnd* connection = handle->connection();
    if (connection == nullptr) return -ENOTCONN;
    const std::string& description = connection->core().connection().description;
    if (bytes != 0) {
      const std::size_t copied = std::min(bytes - 1, description.size());
      std::memcpy(text, description.data(), copied);
      text[copied] = '\0';
    }
    return static_cast<long>(description.size());
  }));
}

const char* leat_last_error(void) { return last_error(); }
const char* leat_version(void) { return leat::version(); }
