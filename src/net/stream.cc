#include "net/stream.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>

#include "base/fork.h"
#include "base/system_error.h"
#include "leat/error.h"

namespace leat::detail {
namespace {

constexpr int kKeepIdleSeconds = 10;
constexpr int kKeepIntervalSeconds = 5;
constexpr int kKeepCount = 3;
constexpr int kMostKeepCount = 127;  // Linux has no more
constexpr int kMostKeepIntervalSeconds = 32'767;
constexpr std::chrono::milliseconds kMaxLinger{500};
constexpr std::size_t kMaxLingerBytes = 64 * 1024;

class PlainStream final : public Stream {
 public:
  explicit PlainStream(Fd socket) : socket_(std::move(socket)) {}

  std::optional<std::size_t> try_read(std::span<std::byte> bytes) override {
    for (;;) {
      const ssize_t got = recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got >= 0) return static_cast<std::size_t>(got);
      if (errno == EAGAIN || errno == EWOULDBLOCK) return std::nullopt;
      if (errno != EINTR) throw system_error("recv from the peer", errno);
    }
  }

  std::optional<std::size_t> try_write(std::span<const std::byte> bytes) override {
    for (;;) {
      const ssize_t sent =
          send(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent >= 0) return static_cast<std::size_t>(sent);
      if (errno == EAGAIN || errno == EWOULDBLOCK) return std::nullopt;
      if (errno != EINTR) throw system_error("send to the peer", errno);
    }
  }

  bool peer_closed() noexcept override { return socket_peer_closed(socket_.get()); }
  Lifeline look_as_lifeline() noexcept override { return socket_as_lifeline(socket_.get()); }
  int fd() const override { return socket_.get(); }
  bool encrypted() const override { return false; }
  void abort() noexcept override { ::shutdown(socket_.get(), SHUT_RDWR); }

 private:
  Fd socket_;
  const NotInherited stays_{socket_.get()};
};

void set_option(int socket, int level, int option, int value, const char* name) {
  check(setsockopt(socket, level, option, &value, sizeof value), name);
}

}  // namespace

void Stream::exported(std::string_view /*label*/, std::span<const std::byte> /*context*/,
                      std::span<std::byte> /*bytes*/) {
  throw Error(ErrorCode::kUnavailable, "a connection without TLS has no keys", kSetAKey);
}

void prepare_socket(int socket) {
  const int flags = check(fcntl(socket, F_GETFL), "fcntl(F_GETFL)");
  check(fcntl(socket, F_SETFL, flags | O_NONBLOCK), "fcntl(O_NONBLOCK)");
  check(fcntl(socket, F_SETFD, FD_CLOEXEC), "fcntl(FD_CLOEXEC)");
  int family = 0;
  socklen_t bytes = sizeof family;
  check(getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &bytes), "getsockopt(SO_DOMAIN)");
  if (family == AF_UNIX) return;  // within the host, nothing delays or dies silently
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1, "setsockopt(TCP_NODELAY)");
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1, "setsockopt(SO_KEEPALIVE)");
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds, "setsockopt(TCP_KEEPIDLE)");
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds, "setsockopt(TCP_KEEPINTVL)");
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kKeepCount, "setsockopt(TCP_KEEPCNT)");
}

void outlast(int socket, std::chrono::milliseconds patience) {
  constexpr std::int64_t kLongest = std::int64_t{kMostKeepCount} * kMostKeepIntervalSeconds;
  std::int64_t seconds = std::chrono::ceil<std::chrono::seconds>(patience).count();
  if (patience < std::chrono::milliseconds::zero() || seconds > kLongest) seconds = kLongest;
  const auto share = [&](int parts) { return static_cast<int>((seconds + parts - 1) / parts); };
  const int interval = std::max(kKeepIntervalSeconds, share(kMostKeepCount));
  const int count = std::max(kKeepCount, share(interval));
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, interval, "setsockopt(TCP_KEEPINTVL)");
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, count, "setsockopt(TCP_KEEPCNT)");
}

void wait_ready(int fd, short events, Deadline deadline, const char* what) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, poll_timeout_ms(deadline));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) throw system_error("poll", errno);
    if (passed(deadline)) throw Error(ErrorCode::kTimeout, what);
  }
}

bool socket_peer_closed(int socket) noexcept {
  pollfd entry{socket, POLLRDHUP, 0};
  return poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

bool socket_drained(int socket) noexcept {
  int unacknowledged = 0;
  if (ioctl(socket, SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0) return true;
  // After a reset they stay unacknowledged for good.
  pollfd reset{socket, 0, 0};
  return poll(&reset, 1, 0) > 0 && (reset.revents & (POLLHUP | POLLERR)) != 0;
}

Lifeline socket_as_lifeline(int socket) noexcept {
  pollfd entry{socket, POLLIN | POLLRDHUP, 0};
  if (poll(&entry, 1, 0) <= 0) return Lifeline::kSilent;
  // A peer that has gone is gone, whatever it said before.
  const bool closed = (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  return closed ? Lifeline::kClosed : Lifeline::kSpoke;
}

std::unique_ptr<Stream> plain_stream(Fd socket) {
  prepare_socket(socket.get());
  return std::make_unique<PlainStream>(std::move(socket));
}

void linger_close(Stream& stream, Deadline deadline) noexcept {
  ::shutdown(stream.fd(), SHUT_WR);
  deadline = std::min(deadline, deadline_after(kMaxLinger));
  std::array<char, 4096> scrap{};
  // Past TLS, if there is any: the content does not matter.
  for (std::size_t dropped = 0; dropped < kMaxLingerBytes && !passed(deadline);) {
    const ssize_t got = recv(stream.fd(), scrap.data(), scrap.size(), MSG_DONTWAIT);
    if (got > 0) {
      dropped += static_cast<std::size_t>(got);
      continue;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) return;
    pollfd entry{stream.fd(), POLLIN, 0};
    poll(&entry, 1, poll_timeout_ms(deadline));
  }
}

void read_all(Stream& stream, std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const auto got = stream.try_read(bytes);
    if (!got) {
      wait_ready(stream.fd(), POLLIN, deadline, "the peer sent nothing in time");
      continue;
    }
    if (*got == 0) throw Error(ErrorCode::kPeerDied, "the peer ended the connection");
    bytes = bytes.subspan(*got);
    // Bytes that trickle in must not stretch the deadline.
    if (!bytes.empty() && passed(deadline)) {
      throw Error(ErrorCode::kTimeout, "the peer sent too little in time");
    }
  }
}

void write_all(Stream& stream, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    if (const auto sent = stream.try_write(bytes)) {
      bytes = bytes.subspan(*sent);
    } else {
      wait_ready(stream.fd(), POLLOUT, deadline, "the peer took nothing in time");
    }
  }
}

}  // namespace leat::detail
