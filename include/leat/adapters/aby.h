// leat in place of ABY's socket (ENCRYPTO_utils/socket.h). ABY declares the class by name, so it
// must be a class:
//
//   class CSocket : public leat::adapters::AbySocket<CSocket> {
//     using AbySocket::AbySocket;
//   };
//
// docs/integration.md says more.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "leat/adapters/endpoint.h"
#include "leat/error.h"
#include "leat/listener.h"
#include "leat/options.h"
#include "leat/socket.h"

namespace leat::adapters {

// A listener or a connection. Accept returns a `Derived`.
// Owner: the caller that constructed it. Threads: one may send while another receives; call Close
// when neither does. Any thread may read the counters.
// Errors: ABY's convention, which is false, null, or fewer bytes than requested; with `verbose` the
// reason goes to standard error.
template <typename Derived>
class AbySocket {
 public:
  explicit AbySocket(bool verbose = false, const Options& options = {})
      : verbose_(verbose), options_(options) {}
  AbySocket(const AbySocket&) = delete;
  AbySocket& operator=(const AbySocket&) = delete;

  // ABY's names.
  // NOLINTBEGIN(readability-identifier-naming)
  bool Socket() { return true; }

  // Takes the port; clients may connect from now on. No address: all addresses.
  bool Bind(const std::string& address = "", std::uint16_t port = 0) {
    return done("bind", [&] { listener_.emplace(endpoint(address, port), options_); });
  }
  bool Listen(int /*backlog*/ = 5) { return listener_.has_value(); }

  std::unique_ptr<Derived> Accept() {
    auto accepted = std::make_unique<Derived>();
    const bool came = done("accept", [&] {
      if (!listener_) throw Error(ErrorCode::kClosed, "this socket does not listen");
      static_cast<AbySocket&>(*accepted).socket_.emplace(listener_->accept());
    });
    return came ? std::move(accepted) : nullptr;
  }

  // Tries once; ABY itself tries again.
  bool Connect(const std::string& host, std::uint16_t port) {
    return done("connect",
                [&] { socket_.emplace(Channel::connect(endpoint(host, port), options_)); });
  }

  // Sends or receives all bytes; returns fewer if the connection has ended.
  std::size_t Send(const void* data, std::size_t bytes) {
    std::span left(static_cast<const std::byte*>(data), bytes);
    done("send", [&] {
      while (!left.empty()) left = left.subspan(connection().send(left));
    });
    sent_.fetch_add(bytes - left.size(), std::memory_order_relaxed);
    return bytes - left.size();
  }
  std::size_t Receive(void* data, std::size_t bytes) {
    std::span left(static_cast<std::byte*>(data), bytes);
    done("receive", [&] {
      while (!left.empty()) {
        const std::size_t got = connection().recv(left);
        if (got == 0) throw Error(ErrorCode::kPeerDied, "the peer ended");
        left = left.subspan(got);
      }
    });
    received_.fetch_add(bytes - left.size(), std::memory_order_relaxed);
    return bytes - left.size();
  }

  void Close() {
    socket_.reset();
    listener_.reset();
  }

  // The address of this end of the connection; "" and 0 if there is none.
  std::string GetIP() const {
    std::string host = local_address();
    host = host.substr(0, host.rfind(':'));
    return host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
  }
  std::uint16_t GetPort() const {
    const std::string address = local_address();
    if (address.empty()) return 0;
    return static_cast<std::uint16_t>(std::stoul(address.substr(address.rfind(':') + 1)));
  }

  std::uint64_t getSndCnt() const { return sent_.load(std::memory_order_relaxed); }
  std::uint64_t getRcvCnt() const { return received_.load(std::memory_order_relaxed); }
  void ResetSndCnt() { sent_.store(0, std::memory_order_relaxed); }
  void ResetRcvCnt() { received_.store(0, std::memory_order_relaxed); }
  // NOLINTEND(readability-identifier-naming)

 private:
  leat::Socket& connection() {
    if (!socket_) throw Error(ErrorCode::kClosed, "not connected");
    return *socket_;
  }
  std::string local_address() const { return socket_ ? socket_->local_address() : std::string(); }

  template <typename Call>
  bool done(const char* what, Call&& call) {
    try {
      call();
      return true;
    } catch (const Error& error) {
      if (verbose_) std::cerr << std::string(what) + " failed: " + error.what() + "\n";
      return false;
    }
  }

  const bool verbose_;
  const Options options_;
  std::optional<Listener> listener_;
  std::optional<leat::Socket> socket_;
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> received_{0};
};

}  // namespace leat::adapters
