// leat-attestd's loop: admits clients, serves them in turn, and sleeps while there is no request.
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <string>
#include <vector>

#include "attestd/client.h"
#include "attestd/holdings.h"
#include "base/fd.h"
#include "base/user_namespace.h"

namespace leat::attestd {

struct ServerOptions {
  std::string path;      // of the socket
  unsigned mode = 0600;  // of the socket: which users may connect
  trusted::detail::RingShape shape;
  std::size_t max_clients = 64;
  std::size_t max_clients_per_user = 32;
  std::size_t max_kernels = 16;        // attestors for connections, for each client
  std::chrono::microseconds spin{50};  // before it sleeps; negative: never sleeps
};

// One thread. Whatever a client does ends at most its own connection.
class Server {
 public:
  // Listens from now on. The other arguments must outlive it. Throws kInvalidArgument for a path
  // where a daemon serves already, kAddress, kResource, kSystem.
  Server(const ServerOptions& options, const Holdings& holdings, const AccessRules& rules);
  ~Server();  // removes the socket
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Serves until `stop` is readable.
  void run(int stop);

 private:
  bool take_turns() noexcept;
  // Waits for events for at most `timeout_ms`; negative: until there is one. Returns false if it is
  // to stop.
  bool handle_events(int timeout_ms);
  bool sleep();
  void accept_clients();
  void let_in(leat::detail::Fd socket);
  void drop(int socket) noexcept;
  // Events of this descriptor arrive with the number `concerns`.
  void watch(int descriptor, unsigned events, int concerns);

  const ServerOptions options_;
  const Holdings& holdings_;
  const AccessRules& rules_;
  // The number of users that this namespace does not map; read before the sandbox forbids it.
  const uid_t unmapped_users_ = leat::detail::number_of_unmapped_users();
  leat::detail::Fd listener_;
  leat::detail::Fd epoll_;
  int stop_ = -1;
  std::list<Client> clients_;
  std::vector<std::byte> scratch_;
};

}  // namespace leat::attestd
