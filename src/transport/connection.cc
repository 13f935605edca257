#include "transport/connection.h"

#include "base/log.h"
#include "conn/link.h"
#include "leat/error.h"
#include "transport/planned.h"
#include "transport/ring.h"
#include "transport/tcp.h"

namespace leat::detail {
namespace {

// Makes a transport in two steps, as conn asks for them: our side first, then with the peer's word.
class Setup {
 public:
  explicit Setup(const Settings& settings) : settings_(settings) {}

  std::vector<std::byte> prepare(Link& link) {
    ring_.reset();
    tcp_.reset();
    if (link.transport == "ring" || link.transport == "planned") {
      RingOptions options;
      options.ring_bytes = settings_.ring_bytes;
      options.context_ring_bytes = settings_.context_ring_bytes;
      options.max_message_bytes = settings_.max_message_bytes;
      options.depths = queue_depths(*link.device);
      if (link.transport == "planned") {
        ring_ = std::make_unique<PlannedTransport>(
            std::move(link.device), std::move(link.queue_pair), options,
            PlannedOptions{settings_.planned_bytes, settings_.plan_digest});
      } else {
        ring_ = std::make_unique<RingTransport>(std::move(link.device), std::move(link.queue_pair),
                                                options);
      }
      return ring_->setup();
    }
    if (link.transport == "tcp") {
      tcp_ = std::make_unique<TcpTransport>(*link.stream, settings_.max_message_bytes);
      return tcp_->setup();
    }
    throw Error(ErrorCode::kUnavailable, "no transport is named '" + link.transport + "'");
  }

  Connection finish(Link& link) {
    Connection connection;
    if (ring_ != nullptr) {
      ring_->start(link.peer_setup);
      connection.transport = std::move(ring_);
    } else {
      tcp_->start(link.peer_setup);
      connection.transport = std::move(tcp_);
    }
    connection.stream = std::move(link.stream);
    connection.transport_name = link.transport;
    connection.device_name = link.device_name;
    connection.peer_address = link.peer_address;
    connection.local_address = link.local_address;
    connection.fallbacks = link.fallbacks;
    connection.description = (link.active ? "connected to " : "accepted ") + link.peer_address +
                             ": " + connection.transport->describe();
    if (!link.rejected.empty()) connection.description += " (rejected: " + link.rejected + ")";
    log(LogLevel::kInfo, connection.description);
    return connection;
  }

 private:
  const Settings& settings_;
  std::unique_ptr<RingTransport> ring_;
  std::unique_ptr<TcpTransport> tcp_;
};

}  // namespace

Connection open_connection(const Uri& uri, const Settings& settings) {
  Setup setup(settings);
  Link link = connect_link(uri, settings, [&](Link& made) { return setup.prepare(made); });
  return setup.finish(link);
}

Connection accept_connection(Fd socket, const Settings& settings,
                             const std::function<void(Stream*)>& on_stream) {
  Setup setup(settings);
  Link link = accept_link(
      std::move(socket), settings, [&](Link& made) { return setup.prepare(made); }, on_stream);
  try {
    return setup.finish(link);
  } catch (...) {
    on_stream(nullptr);  // as accept_link does: nobody must abort a stream that goes
    throw;
  }
}

}  // namespace leat::detail
