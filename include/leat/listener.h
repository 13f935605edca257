// Waits for connections.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "leat/channel.h"

namespace leat {

namespace detail {
class ListenerCore;
struct Settings;
}  // namespace detail

// A real TCP socket at which channels and sockets arrive. Handshakes run side by side, each with a
// deadline, in threads of the listener that live only while a handshake does, so a silent or
// hostile newcomer holds up nobody; what it did wrong is logged. Threads: accept may be called by
// several threads; close by any. Processes: it stays with the process that made it, as a Channel.
class LEAT_EXPORT Listener {
 public:
  // "host:port", ":port" (all addresses), "leat://host:port?device=..."; port 0 lets the system
  // choose. Throws kAddress if the port is in use.
  explicit Listener(const std::string& address, const Options& options = {});
  Listener(Listener&&) noexcept;
  Listener& operator=(Listener&&) noexcept;
  ~Listener();

  // The next connection; blocks, for the option `timeout` if set (then kTimeout). kClosed after
  // close(). A newcomer that fails its handshake is no error here.
  [[nodiscard]] Channel accept();
  // Without blocking: no value if no connection is ready.
  [[nodiscard]] std::optional<Channel> try_accept();

  // "host:port" with the port that the system chose.
  std::string address() const;
  unsigned port() const;
  // Readable when try_accept may find something.
  int fd() const;
  // Frees the port; wakes accept.
  void close() noexcept;

 private:
  friend class GroupMaster;
  const detail::Settings& settings() const;

  std::unique_ptr<detail::ListenerCore> core_;
};

}  // namespace leat
