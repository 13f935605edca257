// TCP, as a program without leat would use it.
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

  // To what TcpListener::address() said.
  static TcpConnection connect(const std::string& address);

  // Its calls try again and again from now on instead of sleeping.
  void spin() const;
  void write_all(std::span<const std::byte> bytes) const;
  // False if the peer ended instead.
  bool read_all(std::span<std::byte> bytes) const;

  int fd() const { return fd_; }

 private:
  int fd_;
};

// Listens at a numeric IPv4 address, on a port that the system chooses.
class TcpListener {
 public:
  explicit TcpListener(const std::string& host = "127.0.0.1");
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;
  ~TcpListener();

  std::string address() const;  // "10.0.0.2:45678"
  TcpConnection accept() const;
  int fd() const { return fd_; }  // readable when a connection is there

 private:
  int fd_;
};

}  // namespace leat::bench
