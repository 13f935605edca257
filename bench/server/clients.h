// The clients of a server, in processes of their own.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "bounds/plain_tcp.h"
#include "forked_peer.h"
#include "server/run.h"

namespace leat::bench {

// The server's view of them. Each holds a share of the channels and exchanges over a share of the
// active ones: it sends a message on each, then takes the answers. Forks, so make it before any
// thread exists. Every call throws std::runtime_error once a client has ended too early.
class Clients {
 public:
  explicit Clients(const ServerLoad& load);
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;

  // They begin to connect there.
  void connect_to(const std::string& address) const;
  // Blocks until the descriptor is readable.
  void wait_readable(int fd) const;
  // They begin to exchange.
  void exchange() const;
  // What they found; blocks until all have.
  void take_results(ServerFigures& figures) const;
  // They close their connections and end.
  void end();
  // Whether one has ended already, or is about to: an end takes Linux a moment.
  bool ended() const;

 private:
  TcpListener control_listener_;
  std::vector<std::unique_ptr<ForkedPeer>> processes_;
  std::vector<TcpConnection> controls_;
};

inline constexpr const char* kClientEnded = "a client process ended in the middle of the benchmark";

}  // namespace leat::bench
