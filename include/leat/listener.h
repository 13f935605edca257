// Accepts connections.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "leat/channel.h"
#include "leat/held.h"

namespace leat {

namespace detail {
class ListenerCore;
struct Settings;
}  // namespace detail

// A TCP socket at which channels and sockets arrive. A thread of the listener, which sleeps while
// no client connects, completes handshakes without any caller in accept(), until as many
// connections as the option `backlog` (default 64) are ready; further clients wait until one is
// accepted, at most for their own connect_timeout.
// Handshakes run side by side in up to 64 threads, each with a deadline; a source (a host) has at
// most 48. Up to 128 more clients hold a descriptor each. When these places are taken, the oldest
// that has not said hello gives way; if one source has more than 96 places, one of that source
// does, with hello too after a tenth of handshake_timeout. What a newcomer did wrong is logged.
// Owner: the caller that constructed it; move-only. Threads: several threads may call accept(), any
// thread close(). Processes: as for Channel, a listener belongs to the process that made it; as it
// has a thread, fork before rather than after.
class LEAT_EXPORT Listener {
 public:
  // Listens at "host:port", ":port" (all addresses) or "leat://host:port?device=..."; for port 0
  // the system chooses one. Throws kAddress if the port is in use or the name does not resolve.
  explicit Listener(const std::string& address, const Options& options = {});
  Listener(Listener&&) noexcept;
  Listener& operator=(Listener&&) noexcept;
  ~Listener();

  // Returns the next connection; blocks, at most for the option `timeout` (then kTimeout). Throws
  // kClosed after close(), and kResource if descriptors, threads or memory run out: the clients
  // stay, and the next call tries again, as if descriptors were free by then. A newcomer that fails
  // its handshake is not an error here.
  [[nodiscard]] Channel accept();
  // The same without blocking: no value if no connection is ready.
  [[nodiscard]] std::optional<Channel> try_accept();

  // "host:port", with the port that the system chose.
  std::string address() const;
  unsigned port() const;
  // A descriptor that becomes readable when try_accept() may find a connection. The listener owns
  // it.
  int fd() const;
  // Frees the port, wakes every caller of accept(), and ends the connections that were not
  // accepted.
  void close() noexcept;

 private:
  friend class GroupMaster;
  friend class Poller;
  const detail::Settings& settings() const;

  detail::Held<std::unique_ptr<detail::ListenerCore>> core_;
};

}  // namespace leat
