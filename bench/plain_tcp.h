// Blocking TCP on loopback, as a program without leat would use it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace leat::bench {

// A connected socket with TCP_NODELAY. Calls throw std::system_error.
class TcpConnection {
 public:
  explicit TcpConnection(int fd);  // takes it over
  TcpConnection(TcpConnection&& other) noexcept;
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;
  ~TcpConnection();

  static TcpConnection connect(const std::string& port);

  void write_all(std::span<const std::byte> bytes) const;
  // False if the peer ended instead.
  bool read_all(std::span<std::byte> bytes) const;

 private:
  int fd_;
};

// Listens on a port of loopback that the system chooses.
class TcpListener {
 public:
  TcpListener();
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;
  ~TcpListener();

  std::string port() const;
  TcpConnection accept() const;

 private:
  int fd_;
};

}  // namespace leat::bench
