#include "transport/connection.h"

#include <algorithm>
#include <string_view>

#include "base/log.h"
#include "conn/link.h"
#include "leat/error.h"
#include "transport/attested.h"
#include "transport/batched.h"
#include "transport/chunked.h"
#include "transport/confirm_each.h"
#include "transport/planned.h"
#include "transport/ring.h"
#include "transport/tcp.h"

namespace leat::detail {
namespace {

constexpr std::string_view kAttested = "attested+";

// Makes a transport in two steps, as conn asks for them: our side first, then with the peer's word.
class Setup {
 public:
  explicit Setup(const Settings& settings) : settings_(settings) {}

  std::vector<std::byte> prepare(Link& link) {
    transport_.reset();
    transport_ = make(link);
    return transport_->setup();
  }

  Connection finish(Link& link) {
    Connection connection;
    transport_->start(link.peer_setup);
    connection.transport = std::move(transport_);
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
  std::unique_ptr<Transport> make(Link& link) const {
    const std::string& name = link.transport;
    if (!name.starts_with(kAttested)) return make_plain(name, link, settings_.max_message_bytes);
    trusted::detail::ChannelSession session(attest_home(), settings_.attest_algorithm, link.active);
    // Records are longer than their messages.
    return std::make_unique<AttestedTransport>(
        make_plain(name.substr(kAttested.size()), link,
                   std::min(settings_.max_message_bytes, trusted::kMaxPayloadBytes) +
                       trusted::kRecordOverheadBytes),
        std::move(session));
  }

  std::unique_ptr<trusted::detail::ChannelHome> attest_home() const {
    if (settings_.attest_kernel == kInProcess)
      return trusted::detail::make_local_home(settings_.attest_key_file,
                                              settings_.attest_algorithm);
    if (!settings_.attest_key_file.empty())
      throw Error(ErrorCode::kInvalidArgument,
                  "attest_key_file is set, and attest_kernel names a leat-attestd",
                  "Set one of them: a key that this process can read is not isolated.");
    return trusted::detail::make_isolated_home(settings_.attest_kernel,
                                               static_cast<std::uint32_t>(settings_.attest_session),
                                               settings_.attest_algorithm, settings_.spin);
  }

  std::unique_ptr<Transport> make_plain(const std::string& name, Link& link,
                                        std::size_t max_message_bytes) const {
    if (name == "tcp") return std::make_unique<TcpTransport>(*link.stream, max_message_bytes);
    const QueueDepths depths = queue_depths(*link.device, link.transport);
    if (name == "ring")
      return std::make_unique<RingTransport>(std::move(link.device), std::move(link.queue_pair),
                                             ring_options(depths, max_message_bytes));
    if (name == "planned")
      return std::make_unique<PlannedTransport>(
          std::move(link.device), std::move(link.queue_pair),
          ring_options(depths, max_message_bytes),
          PlannedOptions{settings_.planned_bytes, settings_.plan_digest});
    if (name == "batched")
      return std::make_unique<BatchedTransport>(std::move(link.device), std::move(link.queue_pair),
                                                slot_options(depths, max_message_bytes));
    if (name == "confirm-each")
      return std::make_unique<ConfirmEachTransport>(std::move(link.device),
                                                    std::move(link.queue_pair),
                                                    slot_options(depths, max_message_bytes));
    if (name == "chunked")
      return std::make_unique<ChunkedTransport>(std::move(link.device), std::move(link.queue_pair),
                                                chunked_options(depths, max_message_bytes),
                                                resumer(link, depths));
    throw Error(ErrorCode::kUnavailable, "no transport is named '" + name + "'");
  }

  RingOptions ring_options(const QueueDepths& depths, std::size_t max_message_bytes) const {
    return {.ring_bytes = settings_.ring_bytes,
            .context_ring_bytes = settings_.context_ring_bytes,
            .max_message_bytes = max_message_bytes,
            .depths = depths};
  }
  SlotOptions slot_options(const QueueDepths& depths, std::size_t max_message_bytes) const {
    return {.slot_bytes = settings_.slot_bytes,
            .slot_count = static_cast<unsigned>(settings_.slot_count),
            .confirm_threshold = static_cast<unsigned>(settings_.confirm_threshold),
            .max_message_bytes = max_message_bytes,
            .depths = depths};
  }
  std::unique_ptr<Resumer> resumer(const Link& link, const QueueDepths& depths) const {
    if (settings_.resume_timeout == std::chrono::milliseconds::zero()) return nullptr;
    // An idle side does not notice that the path is cut; its end of the TCP connection must be
    // there when the other side comes to resume, whose queue pair takes up to 8 seconds to fail.
    outlast(link.stream->fd(), settings_.resume_timeout);
    return std::make_unique<Resumer>(*link.stream, link.active, depths);
  }
  ChunkedOptions chunked_options(const QueueDepths& depths, std::size_t max_message_bytes) const {
    return {.mode = settings_.mode,
            .chunk_bytes = settings_.chunk_bytes,
            .window = settings_.window,
            .link_enable = settings_.link_enable,
            .region_bytes = settings_.region_bytes,
            .region_count = settings_.region_count,
            .verify = settings_.verify,
            .resume_timeout = settings_.resume_timeout,
            .max_message_bytes = max_message_bytes,
            .depths = depths};
  }

  const Settings& settings_;
  std::unique_ptr<Transport> transport_;
};

}  // namespace

Connection open_connection(const Uri& uri, const Settings& settings) {
  Setup setup(settings);
  Link link = connect_link(uri, settings, [&](Link& made) { return setup.prepare(made); });
  return setup.finish(link);
}

Connection open_connection(Fd socket, const Settings& settings) {
  Setup setup(settings);
  Link link =
      connect_link(std::move(socket), settings, [&](Link& made) { return setup.prepare(made); });
  return setup.finish(link);
}

Connection accept_connection(Fd socket, const Settings& settings, const HandshakeNews& news) {
  Setup setup(settings);
  Link link = accept_link(
      std::move(socket), settings, [&](Link& made) { return setup.prepare(made); }, news);
  try {
    return setup.finish(link);
  } catch (...) {
    news.on_stream(nullptr);  // as accept_link does: nobody must abort a stream that goes
    throw;
  }
}

}  // namespace leat::detail
