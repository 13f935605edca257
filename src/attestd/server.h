// leat-attestd's loop: lets clients in, serves each its turn, and sleeps when none asks.
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <string>
#include <vector>

#include "attestd/client.h"
#include "attestd/holdings.h"
#include "base/fd.h"

namespace leat::attestd {

struct ServerOptions {
  std::string path;      // of the socket
  unsigned mode = 0600;  // of the socket: who may connect
  trusted::detail::RingShape shape;
  std::size_t max_clients = 64;
  std::size_t max_clients_per_user = 32;
  std::size_t max_kernels = 16;        // of connections, for each client
  std::chrono::microseconds spin{50};  // before it sleeps; negative: never sleeps
};

// One thread. What clients do ends at most their own connection.
class Server {
 public:
  // Listens from here on. The others must outlive it. Throws kInvalidArgument for a path where
  // somebody serves already, kAddress, kResource, kSystem.
  Server(const ServerOptions& options, const Holdings& holdings, const AccessRules& rules);
  ~Server();  // removes the socket
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Until `stop` is readable.
  void run(int stop);

 private:
  bool take_turns() noexcept;
  // False: it is to stop. Waits for events at most so long; negative: until there is one.
  bool handle_events(int timeout_ms);
  bool sleep();
  void accept_clients();
  void let_in(leat::detail::Fd socket);
  void drop(int socket) noexcept;
  // Events of the descriptor come with the number `concerns`.
  void watch(int descriptor, unsigned events, int concerns);

  const ServerOptions options_;
  const Holdings& holdings_;
  const AccessRules& rules_;
  leat::detail::Fd listener_;
  leat::detail::Fd epoll_;
  int stop_ = -1;
  std::list<Client> clients_;
  std::vector<std::byte> scratch_;
};

}  // namespace leat::attestd
