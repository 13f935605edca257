#include "capi/handle.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/system_error.h"
#include "capi/call.h"

namespace leat::detail::c {
namespace {

constexpr short kAllEvents =
    POLLIN | POLLPRI | POLLOUT | POLLRDHUP | POLLRDNORM | POLLWRNORM | POLLRDBAND | POLLWRBAND;

std::chrono::microseconds timeout_of(int socket, int option) {
  timeval time{};
  socklen_t bytes = sizeof time;
  if (getsockopt(socket, SOL_SOCKET, option, &time, &bytes) < 0 ||
      (time.tv_sec == 0 && time.tv_usec == 0))
    return std::chrono::microseconds(-1);
  return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
}

int option_of(int socket, int level, int option) {
  int value = 0;
  socklen_t bytes = sizeof value;
  check(getsockopt(socket, level, option, &value, &bytes), "getsockopt");
  return value;
}

void set_option(int socket, int level, int option, int value) {
  check(setsockopt(socket, level, option, &value, sizeof value), "setsockopt");
}

// The kernel too has room for one more than it is told, and takes no more than SOMAXCONN.
std::size_t places(int backlog) {
  return static_cast<std::size_t>(std::clamp(backlog, 0, SOMAXCONN)) + 1;
}

// Throws if they contradict each other, so that no client could come in.
Settings settings_to_listen(int backlog) {
  Settings settings = resolve_settings({}, {});
  check_settings(settings);
  settings.backlog = places(backlog);
  return settings;
}

}  // namespace

Handle::Handle(Fd socket, int number, bool nonblocking)
    : socket_(std::move(socket)), nonblocking_(nonblocking), number_(number) {
  read_timeouts();
}

Handle::~Handle() {
  if (made_here()) return;
  // The threads and connections are the parent's.
  static_cast<void>(connecting_.release());
  static_cast<void>(listening_.release());
  static_cast<void>(connection_.release());
}

void Handle::read_timeouts() {
  send_timeout_.store(timeout_of(socket(), SO_SNDTIMEO), std::memory_order_relaxed);
  receive_timeout_.store(timeout_of(socket(), SO_RCVTIMEO), std::memory_order_relaxed);
}

int Handle::fd() {
  if (StreamEnd* connected = connection(); connected != nullptr) return connected->fd();
  const std::lock_guard lock(mutex_);
  if (connecting_ != nullptr) return connecting_->fd();
  return listening_ != nullptr ? listening_->fd() : socket();
}

void Handle::set_number(int number) {
  const std::lock_guard lock(mutex_);
  number_ = number;
}

void Handle::watch_fd(int fd, unsigned events) const {
  if (number_ < 0) return;
  epoll_event wanted{};
  wanted.events = events;
  check(epoll_ctl(number_, EPOLL_CTL_ADD, fd, &wanted), "epoll_ctl");
}

void Handle::unwatch_fd(int fd) const {
  if (number_ >= 0) epoll_ctl(number_, EPOLL_CTL_DEL, fd, nullptr);
}

Handle::Watch Handle::watch() const {
  const int fd = socket();
  return {option_of(fd, SOL_SOCKET, SO_KEEPALIVE), option_of(fd, IPPROTO_TCP, TCP_KEEPIDLE),
          option_of(fd, IPPROTO_TCP, TCP_KEEPINTVL), option_of(fd, IPPROTO_TCP, TCP_KEEPCNT)};
}

Handle::Watch Handle::wanted_watch() {
  const std::lock_guard lock(mutex_);
  return wanted_watch_;
}

void Handle::want_watch(int Watch::*option, int value) {
  const std::lock_guard lock(mutex_);
  if (connecting_ != nullptr) wanted_watch_.*option = value;
}

void Handle::set_watch(const Watch& watch) const {
  const int fd = socket();
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, watch.idle);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, watch.interval);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, watch.count);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, watch.keep_alive);
}

void Handle::adopt(std::unique_ptr<ChannelCore> core) {
  spin_ = core->settings().spin;
  connection_ = std::make_unique<StreamEnd>(std::move(core));
  watch_fd(connection_->fd(), EPOLLIN);
  // Release: a thread that sees the pointer sees the connection.
  connected_.store(connection_.get(), std::memory_order_release);
}

void Handle::adopt(std::unique_ptr<ListenerCore> listener) {
  listening_ = std::move(listener);
  watch_fd(listening_->fd(), EPOLLIN);
}

StreamEnd* Handle::connection() {
  StreamEnd* connection = connected_.load(std::memory_order_acquire);
  if (connection != nullptr) [[likely]]
    return connection;
  const std::lock_guard lock(mutex_);
  settle();
  return connection_.get();
}

bool Handle::connecting() {
  const std::lock_guard lock(mutex_);
  settle();
  return connecting_ != nullptr;
}

// The caller holds the lock. Draws the consequences of a connect that is over.
void Handle::settle() {
  if (connecting_ == nullptr || connecting_->outcome() == Connecting::Outcome::kNone) return;
  unwatch_fd(connecting_->fd());
  const auto done = std::move(connecting_);
  switch (done->outcome()) {
    case Connecting::Outcome::kConnected:
      success_told_ = false;
      set_watch(wanted_watch_);
      adopt(done->take_core());
      break;
    case Connecting::Outcome::kTcpFailed:
      watch_fd(socket(), EPOLLIN);
      break;
    default: {
      error_ = done->error();
      error_text_ = done->text();
      const sockaddr nobody{AF_UNSPEC, {}};
      // So that it can be tried again; if that fails, so will the next connect().
      static_cast<void>(::connect(socket(), &nobody, sizeof nobody));
      watch_fd(socket(), EPOLLIN);
      break;
    }
  }
}

// The caller holds the lock.
int Handle::tell_error() {
  if (error_ == 0) return 0;
  explain(error_text_);
  return -std::exchange(error_, 0);
}

int Handle::handshake_error() {
  const std::lock_guard lock(mutex_);
  return -tell_error();
}

int Handle::bind(const sockaddr* address, socklen_t bytes) const {
  return result_of(::bind(socket(), address, bytes));
}

int Handle::listen(int backlog) {
  const std::lock_guard lock(mutex_);
  settle();
  const bool again = listening_ != nullptr && !listening_->closed();
  // Before the socket listens: what is refused here leaves it as it was.
  const auto settings = again ? std::nullopt : std::optional(settings_to_listen(backlog));
  if (const int result = result_of(::listen(socket(), backlog)); result < 0) return result;
  if (again) {
    listening_->set_backlog(places(backlog));
    return 0;
  }
  if (listening_ != nullptr) unwatch_fd(socket());  // of the shutdown
  listening_ = std::make_unique<ListenerCore>(one_more(socket()), *settings);
  watch_fd(listening_->fd(), EPOLLIN);
  return 0;
}

int Handle::connect(const sockaddr* address, socklen_t bytes) {
  const std::lock_guard lock(mutex_);
  settle();
  if (connecting_ != nullptr) return -EALREADY;
  if (const int error = tell_error(); error != 0) return error;
  const bool dissolves =
      address != nullptr && bytes >= sizeof address->sa_family && address->sa_family == AF_UNSPEC;
  if (connection_ != nullptr) {
    if (dissolves) {
      connection_->dissolve();
      return 0;
    }
    return std::exchange(success_told_, true) ? -EISCONN : 0;
  }
  if (const int result = result_of(::connect(socket(), address, bytes));
      dissolves || (result < 0 && result != -EINPROGRESS))
    return result;
  unwatch_fd(socket());  // of an earlier try
  std::memcpy(&address_, address, std::min<std::size_t>(bytes, sizeof address_));
  address_bytes_ = bytes;
  pollfd entry{socket(), POLLOUT, 0};
  if (poll(&entry, 1, 0) > 0 && (entry.revents & POLLERR) != 0) {
    watch_fd(socket(), EPOLLIN);
    return -EINPROGRESS;  // refused already, which the kernel's socket tells
  }
  wanted_watch_ = watch();
  connecting_ = std::make_unique<Connecting>(one_more(socket()), resolve_settings({}, {}));
  watch_fd(connecting_->fd(), EPOLLIN);
  return -EINPROGRESS;
}

int Handle::connect_result() {
  const std::lock_guard lock(mutex_);
  settle();
  if (connecting_ != nullptr) return -EINPROGRESS;
  if (connection_ != nullptr) {
    success_told_ = true;
    return 0;
  }
  if (const int error = tell_error(); error != 0) return error;
  // The kernel tells why, and forgets it, as in a call that blocks.
  const int result =
      result_of(::connect(socket(), reinterpret_cast<const sockaddr*>(&address_), address_bytes_));
  return result < 0 ? result : -ECONNABORTED;
}

std::unique_ptr<ChannelCore> Handle::accept(int& error) {
  const std::lock_guard lock(mutex_);
  settle();
  int listens = 0;
  socklen_t bytes = sizeof listens;
  getsockopt(socket(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes);
  if (listening_ == nullptr || listens == 0) {
    error = -EINVAL;
    return nullptr;
  }
  auto core = listening_->try_accept();
  if (core == nullptr) error = -EAGAIN;
  return core;
}

int Handle::shutdown(int how) {
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return -EINVAL;
  if (StreamEnd* connected = connection(); connected != nullptr) {
    if (connected->mask(false); connected->is_over()) return -ENOTCONN;
    connected->shutdown(how);
    return 0;
  }
  const std::lock_guard lock(mutex_);
  const int result = result_of(::shutdown(socket(), how));
  if (listening_ != nullptr && result == 0 && how != SHUT_WR) {
    listening_->close();
    watch_fd(socket(), EPOLLIN);  // wakes the waiters
  }
  return result;
}

int Handle::take_error() {
  if (StreamEnd* connected = connection(); connected != nullptr) {
    connected->mask(false);
    return connected->take_error();
  }
  const std::lock_guard lock(mutex_);
  if (connecting_ != nullptr) return 0;
  if (error_ != 0) return -tell_error();
  return option_of(socket(), SOL_SOCKET, SO_ERROR);
}

void Handle::before_last_close() {
  linger how{};
  socklen_t bytes = sizeof how;
  StreamEnd* connected = connection();
  if (connected == nullptr || getsockopt(socket(), SOL_SOCKET, SO_LINGER, &how, &bytes) < 0 ||
      how.l_onoff == 0)
    return;
  if (how.l_linger == 0) {
    connected->abort();
  } else {
    connected->linger(std::chrono::seconds(how.l_linger));
  }
}

unsigned Handle::mask(bool prepare) {
  if (StreamEnd* connected = connection(); connected != nullptr) return connected->mask(prepare);
  const std::lock_guard lock(mutex_);
  if (connecting_ != nullptr) return 0;
  if (error_ != 0) return POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP;
  pollfd entry{socket(), kAllEvents, 0};
  poll(&entry, 1, 0);
  auto mask = static_cast<unsigned>(entry.revents);
  if (listening_ != nullptr && (mask & POLLHUP) == 0)
    mask = listening_->ready() ? POLLIN | POLLRDNORM : 0;
  return mask;
}

bool Handle::waits_silently(unsigned events) {
  StreamEnd* connected = connection();
  return connected != nullptr && connected->waits_silently(events);
}

std::chrono::microseconds Handle::spin() const { return spin_.load(std::memory_order_relaxed); }

void Handle::drain() {
  if (StreamEnd* connected = connection(); connected != nullptr) return connected->drain();
  // Anything that was not there before; for a listener each newcomer, whom alone the kernel tells.
  const unsigned now = mask(false);
  const std::lock_guard lock(mutex_);
  if ((now & ~last_mask_) != 0 || (listening_ != nullptr && now != 0)) ++arrivals_;
  last_mask_ = now;
}

posix::EdgeMarks Handle::marks() {
  StreamEnd* connected = connection();
  const std::lock_guard lock(mutex_);
  posix::EdgeMarks marks = connected != nullptr ? connected->marks() : posix::EdgeMarks{};
  marks.arrivals += arrivals_;
  return marks;
}

}  // namespace leat::detail::c
