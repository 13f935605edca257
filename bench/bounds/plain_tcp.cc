#include "bounds/plain_tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
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

sockaddr_in address_of(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1)
    throw std::system_error(EINVAL, std::generic_category(), "'" + host + "' as IPv4 address");
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

TcpConnection TcpConnection::connect(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  const sockaddr_in peer = address_of(
      address.substr(0, colon), static_cast<std::uint16_t>(std::stoul(address.substr(colon + 1))));
  TcpConnection connection(check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
  check(::connect(connection.fd_, as_sockaddr(peer), sizeof peer), "connect");
  return connection;
}

void TcpConnection::spin() const {
  const int flags = check(fcntl(fd_, F_GETFL), "fcntl(F_GETFL)");
  check(fcntl(fd_, F_SETFL, flags | O_NONBLOCK), "fcntl(O_NONBLOCK)");
}

void TcpConnection::write_all(std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (written < 0 && errno != EINTR && errno != EAGAIN) check(-1, "send");
    if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

bool TcpConnection::read_all(std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = recv(fd_, bytes.data(), bytes.size(), 0);
    if (got == 0) return false;
    if (got < 0 && errno != EINTR && errno != EAGAIN) check(-1, "recv");
    if (got > 0) bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

TcpListener::TcpListener(const std::string& host)
    : fd_(check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket")) {
  const sockaddr_in address = address_of(host, 0);
  check(bind(fd_, as_sockaddr(address), sizeof address), "bind");
  check(listen(fd_, SOMAXCONN), "listen");
}

TcpListener::~TcpListener() { close(fd_); }

std::string TcpListener::address() const {
  sockaddr_in address{};
  socklen_t bytes = sizeof address;
  check(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes), "getsockname");
  char host[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &address.sin_addr, host, sizeof host);
  return std::string(host) + ":" + std::to_string(ntohs(address.sin_port));
}

TcpConnection TcpListener::accept() const {
  return TcpConnection(check(accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC), "accept"));
}

}  // namespace leat::bench
