// leat/c.h over Socket and Listener: handles, errno, and no exception that leaves.
#include "leat/c.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "base/fd.h"
#include "base/system_error.h"
#include "leat/socket.h"
#include "leat/version.h"

namespace leat::detail {
namespace {

thread_local std::string last_error;

// What a handle stands for. The descriptor reserves the number; it is a socket until the handle
// connects or listens, so that bind(2) and getsockname(2) do their work.
struct Handle {
  Fd number;
  std::optional<Socket> socket;
  std::optional<Listener> listener;
  std::atomic<bool> nonblocking{false};
  // Applied to the socket when there is one. Written by setsockopt only.
  std::chrono::milliseconds send_timeout{-1};
  std::chrono::milliseconds receive_timeout{-1};
};

std::shared_mutex handles_mutex;
std::unordered_map<int, std::shared_ptr<Handle>>& handles() {
  static auto* table =
      new std::unordered_map<int, std::shared_ptr<Handle>>;  // outlives exit handlers
  return *table;
}

int add(std::shared_ptr<Handle> handle) {
  const int number = handle->number.get();
  const std::unique_lock lock(handles_mutex);
  handles()[number] = std::move(handle);
  return number;
}

std::shared_ptr<Handle> find(int number) {
  const std::shared_lock lock(handles_mutex);
  const auto found = handles().find(number);
  if (found == handles().end()) throw system_error("leat handle " + std::to_string(number), EBADF);
  return found->second;
}

Socket& connected(Handle& handle) {
  if (!handle.socket) throw system_error("this leat handle is not connected", ENOTCONN);
  return *handle.socket;
}

std::shared_ptr<Handle> new_handle() {
  auto handle = std::make_shared<Handle>();
  handle->number = Fd(check(eventfd(0, EFD_CLOEXEC), "eventfd"));
  return handle;
}

// Keeps the number, gives up the socket behind it: its port is free for the listener.
void drop_socket(const Handle& handle) {
  const Fd event(check(eventfd(0, EFD_CLOEXEC), "eventfd"));
  check(dup3(event.get(), handle.number.get(), O_CLOEXEC), "dup3");
}

std::string to_text(const sockaddr* address, socklen_t bytes) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address != nullptr && address->sa_family == AF_INET && bytes >= sizeof(sockaddr_in)) {
    sockaddr_in in;
    std::memcpy(&in, address, sizeof in);
    inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
    return std::string(text) + ":" + std::to_string(ntohs(in.sin_port));
  }
  if (address != nullptr && address->sa_family == AF_INET6 && bytes >= sizeof(sockaddr_in6)) {
    sockaddr_in6 in;
    std::memcpy(&in, address, sizeof in);
    inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof text);
    return std::string("[").append(text).append("]:").append(std::to_string(ntohs(in.sin6_port)));
  }
  throw system_error("this address", EAFNOSUPPORT);
}

// "1.2.3.4:5" or "[::1]:5", as leat prints its own addresses.
void from_text(const std::string& text, sockaddr* address, socklen_t* bytes) {
  if (address == nullptr || bytes == nullptr) return;
  const std::size_t colon = text.rfind(':');
  const auto port = htons(static_cast<std::uint16_t>(std::stoul(text.substr(colon + 1))));
  sockaddr_storage full{};
  socklen_t size = 0;
  if (text.starts_with('[')) {
    auto& in = reinterpret_cast<sockaddr_in6&>(full);
    in.sin6_family = AF_INET6;
    in.sin6_port = port;
    inet_pton(AF_INET6, text.substr(1, colon - 2).c_str(), &in.sin6_addr);
    size = sizeof in;
  } else {
    auto& in = reinterpret_cast<sockaddr_in&>(full);
    in.sin_family = AF_INET;
    in.sin_port = port;
    inet_pton(AF_INET, text.substr(0, colon).c_str(), &in.sin_addr);
    size = sizeof in;
  }
  std::memcpy(address, &full, std::min(size, *bytes));
  *bytes = size;
}

void take_over(Handle& handle, Socket socket) {
  socket.set_send_timeout(handle.send_timeout);
  socket.set_receive_timeout(handle.receive_timeout);
  handle.socket.emplace(std::move(socket));
}

template <typename Result>
Result failed(int code, const char* text) noexcept {
  try {
    last_error = text;
  } catch (const std::bad_alloc&) {
    last_error.clear();
  }
  errno = code;
  return -1;
}

// Runs `body`; whatever it throws becomes -1 and errno. `timeout_errno`: what a timeout is called.
template <typename Result, typename Body>
Result guarded(int timeout_errno, Body&& body) noexcept {
  try {
    return body();
  } catch (const Error& error) {
    const bool timeout = error.code() == ErrorCode::kTimeout;
    return failed<Result>(timeout ? timeout_errno : error.system_errno(), error.what());
  } catch (const std::bad_alloc&) {
    return failed<Result>(ENOMEM, "out of memory");
  } catch (const std::exception& error) {
    return failed<Result>(EIO, error.what());
  }
}

[[noreturn]] void would_block() { throw system_error("this call would block", EAGAIN); }

std::chrono::milliseconds to_timeout(const void* value, socklen_t bytes) {
  timeval time;
  if (value == nullptr || bytes < sizeof time) throw system_error("leat_setsockopt", EINVAL);
  std::memcpy(&time, value, sizeof time);
  if (time.tv_usec < 0 || time.tv_usec >= 1'000'000) throw system_error("leat_setsockopt", EDOM);
  if (time.tv_sec == 0 && time.tv_usec == 0) return std::chrono::milliseconds(-1);  // none
  return std::chrono::milliseconds(time.tv_sec * 1000 + (time.tv_usec + 999) / 1000);
}

void set_timeout(Handle& handle, int option, std::chrono::milliseconds timeout) {
  (option == SO_SNDTIMEO ? handle.send_timeout : handle.receive_timeout) = timeout;
  if (!handle.socket) return;
  if (option == SO_SNDTIMEO) {
    handle.socket->set_send_timeout(timeout);
  } else {
    handle.socket->set_receive_timeout(timeout);
  }
}

template <typename Value>
void give_value(const Value& value, void* to, socklen_t* bytes) {
  if (to == nullptr || bytes == nullptr || *bytes < sizeof value)
    throw system_error("leat_getsockopt", EINVAL);
  std::memcpy(to, &value, sizeof value);
  *bytes = sizeof value;
}

// How many bytes were sent: all, or those before an error, which then comes with the next call.
std::size_t send_all(Socket& socket, std::span<const std::byte> bytes) {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    try {
      sent += socket.send(bytes.subspan(sent));
    } catch (const Error&) {
      if (sent == 0) throw;
      break;
    }
  }
  return sent;
}

ssize_t receive(Handle& handle, std::span<std::byte> bytes, int flags) {
  Socket& socket = connected(handle);
  const bool peek = (flags & MSG_PEEK) != 0;
  if ((flags & MSG_DONTWAIT) != 0 || handle.nonblocking.load(std::memory_order_relaxed)) {
    const auto got = peek ? socket.try_peek(bytes) : socket.try_recv(bytes);
    if (!got) would_block();
    return static_cast<ssize_t>(*got);
  }
  if (peek) return static_cast<ssize_t>(socket.peek(bytes));
  std::size_t total = socket.recv(bytes);
  while ((flags & MSG_WAITALL) != 0 && total != 0 && total < bytes.size()) {
    std::size_t more = 0;
    try {
      more = socket.recv(bytes.subspan(total));
    } catch (const Error&) {
      break;  // what is here is given; the error comes with the next call
    }
    if (more == 0) break;
    total += more;
  }
  return static_cast<ssize_t>(total);
}

}  // namespace
}  // namespace leat::detail

using namespace leat::detail;

int leat_socket(int family, int type, int protocol) {
  return guarded<int>(ETIMEDOUT, [&] {
    if ((type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) != SOCK_STREAM)
      throw system_error("leat_socket: only SOCK_STREAM", EPROTONOSUPPORT);
    if (family != AF_INET && family != AF_INET6)
      throw system_error("leat_socket: only AF_INET and AF_INET6", EAFNOSUPPORT);
    auto handle = std::make_shared<Handle>();
    handle->number = Fd(check(socket(family, type, protocol), "socket"));
    handle->nonblocking = (type & SOCK_NONBLOCK) != 0;
    return add(std::move(handle));
  });
}

int leat_bind(int number, const sockaddr* address, socklen_t bytes) {
  return guarded<int>(ETIMEDOUT, [&] {
    const auto handle = find(number);
    const int on = 1;
    setsockopt(number, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return check(bind(number, address, bytes), "bind");
  });
}

int leat_listen(int number, int /*backlog*/) {
  return guarded<int>(ETIMEDOUT, [&] {
    const auto handle = find(number);
    if (handle->socket || handle->listener) throw system_error("leat_listen", EINVAL);
    sockaddr_storage bound{};
    socklen_t bytes = sizeof bound;
    check(getsockname(number, reinterpret_cast<sockaddr*>(&bound), &bytes), "getsockname");
    const std::string address = to_text(reinterpret_cast<const sockaddr*>(&bound), bytes);
    drop_socket(*handle);
    handle->listener.emplace(address);
    return 0;
  });
}

int leat_accept(int number, sockaddr* address, socklen_t* bytes) {
  return guarded<int>(EAGAIN, [&] {
    const auto handle = find(number);
    if (!handle->listener) throw system_error("leat_accept: this handle does not listen", EINVAL);
    std::optional<leat::Channel> channel;
    if (handle->nonblocking.load(std::memory_order_relaxed)) {
      channel = handle->listener->try_accept();
      if (!channel) would_block();
    } else {
      channel = handle->listener->accept();
    }
    auto accepted = new_handle();
    take_over(*accepted, leat::Socket(std::move(*channel)));
    from_text(accepted->socket->peer_address(), address, bytes);
    return add(std::move(accepted));
  });
}

int leat_connect(int number, const sockaddr* address, socklen_t bytes) {
  return guarded<int>(ETIMEDOUT, [&] {
    const auto handle = find(number);
    if (handle->socket) throw system_error("leat_connect", EISCONN);
    if (handle->listener) throw system_error("leat_connect: this handle listens", EINVAL);
    take_over(*handle, leat::Socket::connect(to_text(address, bytes)));
    return 0;
  });
}

int leat_connect_uri(const char* uri) {
  return guarded<int>(ETIMEDOUT, [&] {
    if (uri == nullptr) throw system_error("leat_connect_uri", EFAULT);
    auto handle = new_handle();
    take_over(*handle, leat::Socket::connect(uri));
    return add(std::move(handle));
  });
}

int leat_listen_uri(const char* uri) {
  return guarded<int>(ETIMEDOUT, [&] {
    if (uri == nullptr) throw system_error("leat_listen_uri", EFAULT);
    auto handle = new_handle();
    handle->listener.emplace(uri);
    return add(std::move(handle));
  });
}

ssize_t leat_send(int number, const void* data, size_t bytes, int flags) {
  return guarded<ssize_t>(EAGAIN, [&]() -> ssize_t {
    const auto handle = find(number);
    if ((flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL)) != 0)
      throw system_error("leat_send: these flags", EOPNOTSUPP);
    leat::Socket& socket = connected(*handle);
    const std::span message(static_cast<const std::byte*>(data), bytes);
    if ((flags & MSG_DONTWAIT) == 0 && !handle->nonblocking.load(std::memory_order_relaxed)) {
      return static_cast<ssize_t>(send_all(socket, message));
    }
    const auto sent = socket.try_send(message);
    if (!sent) would_block();
    return static_cast<ssize_t>(*sent);
  });
}

ssize_t leat_recv(int number, void* data, size_t bytes, int flags) {
  return guarded<ssize_t>(EAGAIN, [&] {
    const auto handle = find(number);
    if ((flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_PEEK | MSG_WAITALL)) != 0)
      throw system_error("leat_recv: these flags", EOPNOTSUPP);
    return receive(*handle, {static_cast<std::byte*>(data), bytes}, flags);
  });
}

int leat_shutdown(int number, int how) {
  return guarded<int>(EAGAIN, [&] {
    leat::Socket& socket = connected(*find(number));
    switch (how) {
      case SHUT_RD:
        socket.shutdown(leat::Socket::Shutdown::kReceive);
        return 0;
      case SHUT_WR:
        socket.shutdown(leat::Socket::Shutdown::kSend);
        return 0;
      case SHUT_RDWR:
        socket.shutdown(leat::Socket::Shutdown::kBoth);
        return 0;
      default:
        throw system_error("leat_shutdown", EINVAL);
    }
  });
}

int leat_close(int number) {
  return guarded<int>(ETIMEDOUT, [&] {
    std::shared_ptr<Handle> handle = find(number);
    {
      const std::unique_lock lock(handles_mutex);
      handles().erase(number);
    }
    if (handle->listener) handle->listener->close();  // wakes an accept in another thread
    return 0;
  });
}

int leat_setsockopt(int number, int level, int option, const void* value, socklen_t bytes) {
  return guarded<int>(ETIMEDOUT, [&] {
    const auto handle = find(number);
    if (level == SOL_SOCKET && (option == SO_RCVTIMEO || option == SO_SNDTIMEO)) {
      set_timeout(*handle, option, to_timeout(value, bytes));
      return 0;
    }
    // Always so with leat: small messages leave at once, the peer's death is noticed, ports are
    // free again when their listener is gone.
    const bool granted =
        (level == SOL_SOCKET && (option == SO_REUSEADDR || option == SO_KEEPALIVE)) ||
        (level == IPPROTO_TCP && option == TCP_NODELAY);
    if (!granted) throw system_error("leat_setsockopt: this option", ENOPROTOOPT);
    return 0;
  });
}

int leat_getsockopt(int number, int level, int option, void* value, socklen_t* bytes) {
  return guarded<int>(ETIMEDOUT, [&] {
    const auto handle = find(number);
    if (level == SOL_SOCKET && (option == SO_RCVTIMEO || option == SO_SNDTIMEO)) {
      const auto timeout =
          std::max(option == SO_SNDTIMEO ? handle->send_timeout : handle->receive_timeout,
                   std::chrono::milliseconds(0));
      give_value(timeval{timeout.count() / 1000, timeout.count() % 1000 * 1000}, value, bytes);
    } else if (level == SOL_SOCKET && option == SO_ERROR) {
      give_value(0, value, bytes);  // errors come with the call that meets them
    } else if (level == SOL_SOCKET && option == SO_TYPE) {
      give_value(static_cast<int>(SOCK_STREAM), value, bytes);
    } else if ((level == IPPROTO_TCP && option == TCP_NODELAY) ||
               (level == SOL_SOCKET && (option == SO_REUSEADDR || option == SO_KEEPALIVE))) {
      give_value(1, value, bytes);
    } else {
      throw system_error("leat_getsockopt: this option", ENOPROTOOPT);
    }
    return 0;
  });
}

int leat_getsockname(int number, sockaddr* address, socklen_t* bytes) {
  return guarded<int>(ETIMEDOUT, [&] {
    const auto handle = find(number);
    if (!handle->socket && !handle->listener)
      return check(getsockname(number, address, bytes), "getsockname");
    from_text(handle->socket ? handle->socket->local_address() : handle->listener->address(),
              address, bytes);
    return 0;
  });
}

int leat_getpeername(int number, sockaddr* address, socklen_t* bytes) {
  return guarded<int>(ETIMEDOUT, [&] {
    from_text(connected(*find(number)).peer_address(), address, bytes);
    return 0;
  });
}

int leat_set_nonblocking(int number, int on) {
  return guarded<int>(ETIMEDOUT, [&] {
    find(number)->nonblocking.store(on != 0, std::memory_order_relaxed);
    return 0;
  });
}

int leat_poll_fd(int number) {
  return guarded<int>(ETIMEDOUT, [&] {
    const auto handle = find(number);
    return handle->listener ? handle->listener->fd() : connected(*handle).fd();
  });
}

int leat_description(int number, char* text, size_t bytes) {
  return guarded<int>(ETIMEDOUT, [&] {
    const std::string description = connected(*find(number)).channel().description();
    if (bytes != 0) {
      const std::size_t copied = std::min(bytes - 1, description.size());
      std::memcpy(text, description.data(), copied);
      text[copied] = '\0';
    }
    return static_cast<int>(description.size());
  });
}

const char* leat_last_error(void) { return last_error.c_str(); }
const char* leat_version(void) { return leat::version(); }
