// leat in place of Piranha's BmrNet:
//
//   using BmrNet = leat::adapters::BmrNet<commObject>;  // its global counter of communication
//
// docs/integration.md says more.
#pragma once

#include <poll.h>

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

// Three connections between two parties, numbered from 0. `kCounter` receives incrementSent(int)
// and incrementRecv(int).
// Owner: the caller that constructed it. Threads: as for Piranha's BmrNet, each connection by
// itself; one thread may send over it while another receives.
// Errors: Piranha's convention, false; the reason goes to standard error. Unlike Piranha's BmrNet
// it also returns false if the peer ended before all bytes had arrived.
template <auto& kCounter>
class BmrNet {
 public:
  static constexpr int kConnections = 3;
  // How long a server waits for a newcomer to name its connection, unless the option
  // `handshake_timeout` says otherwise.
  static constexpr std::chrono::seconds kNumberLimit{10};

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

  // Waits for the client. Its connections replace those of an earlier call. Of two connections with
  // the same number the later one is kept, because a client may have died and been restarted.
  bool listenNow() {
    return done("listen", [&] {
      Listener listener(endpoint("", port_), options_);
      Sockets sockets;
      for (int missing = kConnections; missing != 0;) {
        Socket socket = Socket::accept(listener);
        std::uint32_t number = 0;
        // Newcomers without a valid number are strangers.
        if (!done("accept", [&] { return hear_number(socket, number); }) || number >= kConnections)
          continue;
        if (!sockets[number]) --missing;
        sockets[number] = std::move(socket);
      }
      sockets_ = std::move(sockets);
      return true;
    });
  }

  // Waits for the server, without limit unless the options set one. The connections replace those
  // of an earlier call.
  bool connectNow() {
    return done("connect", [&] {
      if (!host_)
        throw Error(ErrorCode::kInvalidArgument, "connectNow: this BmrNet was made without a host");
      Sockets sockets;
      for (std::uint32_t number = 0; number < kConnections; ++number) {
        Socket socket = Socket::connect(endpoint(*host_, port_),
                                        patient(options_, std::chrono::milliseconds(-1)));
        // Connections may arrive in another order than they were made.
        socket.send_all(bytes_of(&number, sizeof number));
        sockets[number] = std::move(socket);
      }
      sockets_ = std::move(sockets);
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
  using Sockets = std::array<std::optional<Socket>, kConnections>;

  // Waits only for the limit, because a silent newcomer delays the others. False: it ended.
  bool hear_number(Socket& socket, std::uint32_t& number) const {
    using Clock = std::chrono::steady_clock;
    const std::chrono::milliseconds limit = options_.handshake_timeout.value_or(kNumberLimit);
    const Clock::time_point start = Clock::now();
    for (std::span<std::byte> left = bytes_of(&number, sizeof number); !left.empty();) {
      if (const auto got = socket.try_recv(left)) {
        if (*got == 0) return false;
        left = left.subspan(*got);
        continue;
      }
      pollfd news{socket.fd(), POLLIN, 0};
      if (limit.count() >= 0 && Clock::now() - start >= limit)
        throw Error(ErrorCode::kTimeout, "the newcomer from " + socket.peer_address() +
                                             " does not say which connection it is");
      ::poll(&news, 1, kPollMilliseconds);
    }
    return true;
  }
  static constexpr int kPollMilliseconds = 100;  // between two looks at the clock

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
  Sockets sockets_;
};

}  // namespace leat::adapters
