#include "plain_tcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace leat::bench {
namespace {

int check(int result, const char* call) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), call);
  return result;
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

const sockaddr* as_sockaddr(const sockaddr_in& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

}  // namespace

TcpConnection::TcpConnection(int fd) : fd_(fd) {
  const int on = 1;
  check(setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "setsockopt(TCP_NODELAY)");
}

TcpConnection::TcpConnection(TcpConnection&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

TcpConnection::~TcpConnection() {
  if (fd_ >= 0) close(fd_);
}

TcpConnection TcpConnection::connect(const std::string& port) {
  TcpConnection connection(check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
  const sockaddr_in address = loopback(static_cast<std::uint16_t>(std::stoul(port)));
  check(::connect(connection.fd_, as_sockaddr(address), sizeof address), "connect");
  return connection;
}

void TcpConnection::write_all(std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (written < 0 && errno != EINTR) check(-1, "send");
    if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

bool TcpConnection::read_all(std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = recv(fd_, bytes.data(), bytes.size(), 0);
    if (got == 0) return false;
    if (got < 0 && errno != EINTR) check(-1, "recv");
    if (got > 0) bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

TcpListener::TcpListener() : fd_(check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket")) {
  const sockaddr_in address = loopback(0);
  check(bind(fd_, as_sockaddr(address), sizeof address), "bind");
  check(listen(fd_, 1), "listen");
}

TcpListener::~TcpListener() { close(fd_); }

std::string TcpListener::port() const {
  sockaddr_in address{};
  socklen_t bytes = sizeof address;
  check(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes), "getsockname");
  return std::to_string(ntohs(address.sin_port));
}

TcpConnection TcpListener::accept() const {
  return TcpConnection(check(accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC), "accept"));
}

}  // namespace leat::bench
