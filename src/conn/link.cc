#include "conn/link.h"

#include <sys/socket.h>

#include <algorithm>

#include "base/log.h"
#include "conn/choice.h"
#include "conn/device_list.h"
#include "conn/negotiate.h"
#include "conn/tcp.h"
#include "conn/tls.h"
#include "leat/error.h"

namespace leat::detail {
namespace {

Error in_context(const std::string& what, const Error& error) {
  return {error.code(), what + ": " + error.what(), {}, error.system_errno()};
}

std::unique_ptr<TlsContext> tls_context(const Settings& settings, TlsRole role) {
  return tls_wanted(settings) ? std::make_unique<TlsContext>(settings, role) : nullptr;
}

// A stream whose handshake, if it has one, is still to be done: abort() works from the beginning.
struct NewStream {
  std::unique_ptr<Stream> stream;
  TlsStream* tls = nullptr;
};

NewStream make_stream(Fd socket, std::unique_ptr<TlsContext> context) {
  if (!context) return {plain_stream(std::move(socket)), nullptr};
  auto stream = std::make_unique<TlsStream>(std::move(socket), std::move(context));
  TlsStream* tls = stream.get();
  return {std::move(stream), tls};
}

// Tells of a stream, and takes it back on the way out of a handshake that failed.
class StreamNotice {
 public:
  explicit StreamNotice(const std::function<void(Stream*)>& tell) : tell_(tell) {}
  StreamNotice(const StreamNotice&) = delete;
  StreamNotice& operator=(const StreamNotice&) = delete;
  ~StreamNotice() {
    if (given_) tell_(nullptr);
  }

  void give(Stream* stream) {
    tell_(stream);
    given_ = true;
  }
  void keep() { given_ = false; }

 private:
  const std::function<void(Stream*)>& tell_;
  bool given_ = false;
};

void warn_if_in_clear(const Negotiation& side) {
  const bool local = side.peer_host == side.local_host || side.peer_host.starts_with("127.");
  if (side.link.stream->encrypted() || local) return;
  log_once(LogLevel::kWarn,
           "connections to other hosts run without TLS: anyone on the network can read, change and "
           "make them. Set tls_psk_file on both sides; openssl rand -hex 32 makes a key.");
}

// What the active side brings to its handshake.
struct Greeting {
  const Settings& settings;
  const DeviceList& devices;
  const Prepare& prepare;
  const Deadline deadline;
};

// The active side's handshake over a connected TCP socket; `peer` is for errors.
Link greet(Fd socket, const std::string& peer, const Greeting& how,
           std::unique_ptr<TlsContext> context) {
  Link link;
  link.active = true;
  try {
    const int fd = socket.get();
    link.peer_address = peer_address(fd);
    link.local_address = local_address(fd);
    const Negotiation side{link,         how.settings,   how.devices,  how.prepare,
                           how.deadline, local_host(fd), peer_host(fd)};
    NewStream made = make_stream(std::move(socket), std::move(context));
    link.stream = std::move(made.stream);
    if (made.tls != nullptr) made.tls->handshake(how.deadline);
    warn_if_in_clear(side);
    negotiate_active(side);
  } catch (const Error& error) {
    throw in_context("connecting to " + peer, error);
  }
  return link;
}

}  // namespace

QueueDepths queue_depths(const Device& device, const std::string& transport) {
  const Limits limits = device.limits();
  QueueDepths depths;
  depths.send_requests = std::min(depths.send_requests, limits.max_send_requests);
  depths.receive_requests = std::min(receive_requests_of(transport), limits.max_receive_requests);
  return depths;
}

void check_settings(const Settings& settings) {
  check_choice(settings, DeviceList(settings.device));
  tls_context(settings, TlsRole::kPassive);
}

Link connect_link(const Uri& uri, const Settings& settings, const Prepare& prepare) {
  const DeviceList devices(settings.device);
  check_choice(settings, devices);
  auto context = tls_context(settings, TlsRole::kActive);
  const Deadline deadline = deadline_after(settings.connect_timeout);
  Fd socket = connect_tcp(uri, deadline, settings.connect_retry);
  return greet(std::move(socket), host_and_port(uri.host, uri.port),
               {settings, devices, prepare, deadline}, std::move(context));
}

Link connect_link(Fd socket, const Settings& settings, const Prepare& prepare) {
  const DeviceList devices(settings.device);
  check_choice(settings, devices);
  auto context = tls_context(settings, TlsRole::kActive);
  const std::string peer = peer_address(socket.get());
  return greet(std::move(socket), peer,
               {settings, devices, prepare, deadline_after(settings.connect_timeout)},
               std::move(context));
}

Link accept_link(Fd socket, const Settings& settings, const Prepare& prepare,
                 const HandshakeNews& news) {
  const Deadline deadline = deadline_after(settings.handshake_timeout);
  Link link;
  TlsStream* tls = nullptr;
  bool in_tls_handshake = false;
  StreamNotice notice{news.on_stream};
  try {
    const DeviceList devices(settings.device);
    check_choice(settings, devices);
    const int fd = socket.get();
    link.peer_address = peer_address(fd);
    link.local_address = local_address(fd);
    const Negotiation side{link,     settings,       devices,       prepare,
                           deadline, local_host(fd), peer_host(fd), news.on_last_word};
    NewStream made = make_stream(std::move(socket), tls_context(settings, TlsRole::kPassive));
    link.stream = std::move(made.stream);
    tls = made.tls;
    notice.give(link.stream.get());
    if (tls != nullptr) {
      in_tls_handshake = true;
      tls->handshake(deadline);
      in_tls_handshake = false;
    }
    warn_if_in_clear(side);
    negotiate_passive(side);
  } catch (const Error& error) {
    if (in_tls_handshake) {
      if (tls->peer_in_clear()) {
        const auto bytes = refusal(
            Error(ErrorCode::kAuthentication, "this listener asks for TLS", "Set tls_* settings."));
        ::send(tls->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      }
      linger_close(*tls, deadline);  // for this, or OpenSSL's alert
    }
    throw in_context(
        "handshake with " + (link.peer_address.empty() ? "a newcomer" : link.peer_address), error);
  }
  notice.keep();
  return link;
}

}  // namespace leat::detail
