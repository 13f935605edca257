// leat in place of Piranha's BmrNet:
//
//   using BmrNet = leat::adapters::BmrNet<commObject>;  // its global counter of communication
//
// docs/integration.md says more.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "leat/adapters/endpoint.h"
#include "leat/error.h"
#include "leat/listener.h"
#include "leat/options.h"
#include "leat/socket.h"

namespace leat::adapters {

// Three connections between two parties, numbered from 0. `kCounter` gets incrementSent(int) and
// incrementRecv(int).
// Owner: whoever constructed it. Threads: as BmrNet, each connection for itself; one thread may
// send over it while another receives.
// Errors: Piranha's convention, false; what was wrong goes to standard error. Unlike BmrNet it also
// returns false if the peer ended before all bytes had come.
template <auto& kCounter>
class BmrNet {
 public:
  static constexpr int kConnections = 3;

  // For connectNow.
  BmrNet(const char* host, int port, const Options& options = {})
      : host_(host), port_(port), options_(options) {}
  // For listenNow, at all addresses.
  explicit BmrNet(int port, const Options& options = {}) : port_(port), options_(options) {}
  BmrNet(const BmrNet&) = delete;
  BmrNet& operator=(const BmrNet&) = delete;
  virtual ~BmrNet() = default;

  // BmrNet's names.
  // NOLINTBEGIN(readability-identifier-naming)

  // Waits for the client.
  bool listenNow() {
    return done("listen", [&] {
      Listener listener(endpoint("", port_), options_);
      for (int missing = kConnections; missing != 0;) {
        Socket socket = Socket::accept(listener);
        std::uint32_t number = 0;
        // Those that have no number are strangers.
        if (!done("accept", [&] { return socket.recv_all(bytes_of(&number, sizeof number)); }) ||
            number >= kConnections)
          continue;
        if (!sockets_[number]) --missing;
        sockets_[number] = std::move(socket);
      }
      return true;
    });
  }

  // Waits for the server, without end unless the options say otherwise.
  bool connectNow() {
    return done("connect", [&] {
      if (!host_)
        throw Error(ErrorCode::kInvalidArgument, "connectNow: this BmrNet was made without a host");
      for (std::uint32_t number = 0; number < kConnections; ++number) {
        Socket socket = Socket::connect(endpoint(*host_, port_),
                                        patient(options_, std::chrono::milliseconds(-1)));
        // Connections may arrive in another order than they were made.
        socket.send_all(bytes_of(&number, sizeof number));
        sockets_[number] = std::move(socket);
      }
      return true;
    });
  }

  bool sendMsg(const void* data, int size, int connection) {
    return done("send", [&] {
      Socket& socket = at(connection, size);
      socket.send_all({static_cast<const std::byte*>(data), static_cast<std::size_t>(size)});
      kCounter.incrementSent(size);
      return true;
    });
  }

  bool receiveMsg(void* data, int size, int connection) {
    return done("receive", [&] {
      Socket& socket = at(connection, size);
      if (size != 0 && !socket.recv_all(bytes_of(data, static_cast<std::size_t>(size))))
        throw Error(ErrorCode::kPeerDied, "the peer ended");
      kCounter.incrementRecv(size);
      return true;
    });
  }
  // NOLINTEND(readability-identifier-naming)

 private:
  static std::span<std::byte> bytes_of(void* data, std::size_t bytes) {
    return {static_cast<std::byte*>(data), bytes};
  }

  Socket& at(int connection, int size) {
    if (connection < 0 || connection >= kConnections || size < 0)
      throw Error(ErrorCode::kInvalidArgument,
                  std::to_string(size) + " bytes over connection " + std::to_string(connection));
    std::optional<Socket>& socket = sockets_[static_cast<std::size_t>(connection)];
    if (!socket) throw Error(ErrorCode::kClosed, "not connected");
    return *socket;
  }

  template <typename Call>
  bool done(const char* what, Call&& call) {
    try {
      return call();
    } catch (const Error& error) {
      const std::string text = "BmrNet " + host_.value_or("") + ":" + std::to_string(port_) + ", " +
                               what + ": " + error.what() + "\n";
      std::cerr << text;
      return false;
    }
  }

  const std::optional<std::string> host_;
  const int port_;
  const Options options_;
  std::array<std::optional<Socket>, kConnections> sockets_;
};

}  // namespace leat::adapters
