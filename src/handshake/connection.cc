#include "handshake/connection.h"

#include "base/log.h"
#include "base/quote.h"
#include "base/system_error.h"
#include "handshake/choice.h"
#include "handshake/device_list.h"
#include "handshake/negotiate.h"
#include "leat/error.h"
#include "net/tcp.h"
#include "net/tls.h"
#include "transport/table.h"
#include "verbs/table.h"

namespace leat::detail {
namespace {

Error in_context(const std::string& what, const Error& error) {
  return {error.code(), what + ": " + error.what(), {}, error.system_errno()};
}

std::unique_ptr<TlsContext> tls_context(const Settings& settings, const std::string& host) {
  return tls_wanted(settings) ? std::make_unique<TlsContext>(settings, host) : nullptr;
}

// A name that no device of this machine has is a typing error, which would otherwise show only when
// both sides have met. Throws if no other device is allowed.
void check_devices(const DeviceList& devices) {
  if (!devices.names_devices()) return;
  const std::vector<std::string> present = device_names();
  const std::string missing = devices.missing(present);
  if (missing.empty()) return;
  std::string there;
  for (const std::string& name : present) there += (there.empty() ? "" : ", ") + name;
  const std::string text = "device " + quoted(devices.text()) + " names " + missing +
                           ", which this machine does not have (it has " +
                           (there.empty() ? "no RDMA device" : there) + ")";
  if (!devices.leaves_any(present))
    throw Error(ErrorCode::kUnavailable, text, "leat-info -d shows the devices.");
  log_once(LogLevel::kWarn, text + ". leat-info -d shows the devices.");
}

// A stream whose TLS handshake, if it has one, is still to be done: abort() works from the start.
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

bool is_local(const Negotiation& side) {
  return side.route.peer_host == side.route.local_host || side.route.peer_host.starts_with("127.");
}

void warn_if_in_clear(const Negotiation& side) {
  if (side.connection.stream->encrypted() || is_local(side)) return;
  log_once(LogLevel::kWarn,
           "connections to other hosts run without TLS: anyone on the network can read, change and "
           "make them. " +
               std::string(kSetAKey));
}

// What there is to be said of secrecy where the stream's own does not decide it.
std::string about_secrecy(const Negotiation& side) {
  const Connection& connection = side.connection;
  const DeviceRow* device = find_device_row(connection.device_name);
  if (device == nullptr) return "";
  const bool tls = connection.stream->encrypted();
  const bool clear = in_clear(*device, connection.transport_name, tls);
  if (clear && tls && !is_local(side))
    log_once(LogLevel::kWarn,
             "messages over RDMA to other hosts go in clear: TLS protects only how connections are "
             "made. Set confidential=prefer, or transport=sealed+ring.");
  if (side.settings.confidential == Confidential::kOff) return "";
  if (clear) return ", in clear";
  const bool sealed = is_sealed(connection.transport_name);
  return !leaves_host(*device) && !sealed ? ", not encrypted because it stays in this host" : "";
}

void finish(const Negotiation& side, const std::vector<std::byte>& peer_setup) {
  Connection& connection = side.connection;
  connection.transport->start(peer_setup);
  connection.description = (side.active ? "connected to " : "accepted ") + connection.peer_address +
                           ": " + connection.transport->describe() + about_secrecy(side);
  if (!connection.rejected.empty())
    connection.description += " (rejected: " + connection.rejected + ")";
  log(LogLevel::kInfo, connection.description);
}

// The active side's handshake over a connected TCP socket; `peer` is for errors.
Connection greet(Fd socket, const std::string& peer, const Settings& settings,
                 const DeviceList& devices, Deadline deadline,
                 std::unique_ptr<TlsContext> context) {
  Connection connection;
  try {
    const int fd = socket.get();
    connection.peer_address = peer_address(fd);
    connection.local_address = local_address(fd);
    const Negotiation side{connection, settings, devices,
                           deadline,   true,     {local_host(fd), peer_host(fd)}};
    NewStream made = make_stream(std::move(socket), std::move(context));
    connection.stream = std::move(made.stream);
    if (made.tls != nullptr) made.tls->handshake(deadline);
    warn_if_in_clear(side);
    finish(side, negotiate_active(side));
  } catch (const Error& error) {
    throw in_context("connecting to " + peer, error);
  }
  return connection;
}

DeviceList checked_devices(const Settings& settings) {
  DeviceList devices(settings.device);
  check_choice(settings, devices);
  check_devices(devices);
  return devices;
}

}  // namespace

void check_settings(const Settings& settings) {
  (void)checked_devices(settings);
  if (tls_wanted(settings)) TlsContext(settings, TlsRole::kPassive);
}

Connection open_connection(const Uri& uri, const Settings& settings) {
  const DeviceList devices = checked_devices(settings);
  auto context = tls_context(settings, uri.host);
  const Deadline deadline = deadline_after(settings.connect_timeout);
  Fd socket = connect_tcp(uri, deadline, settings.connect_retry);
  return greet(std::move(socket), host_and_port(uri.host, uri.port), settings, devices, deadline,
               std::move(context));
}

Connection open_connection(Fd socket, const Settings& settings) {
  const DeviceList devices = checked_devices(settings);
  auto context = tls_context(settings, peer_host(socket.get()));
  const std::string peer = peer_address(socket.get());
  return greet(std::move(socket), peer, settings, devices, deadline_after(settings.connect_timeout),
               std::move(context));
}

Connection accept_connection(Heard client, const Settings& settings, const HandshakeNews& news) {
  const Deadline deadline = deadline_after(settings.handshake_timeout);
  Connection connection;
  connection.stream = std::move(client.stream);
  try {
    const DeviceList devices(settings.device);
    check_choice(settings, devices);
    const int fd = connection.stream->fd();
    connection.peer_address = peer_address(fd);
    connection.local_address = local_address(fd);
    const Negotiation side{connection,       settings, devices,
                           deadline,         false,    {local_host(fd), peer_host(fd)},
                           news.on_last_word};
    warn_if_in_clear(side);
    finish(side, negotiate_passive(side, client.hello));
  } catch (const Error& error) {
    news.on_stream_end();
    throw in_context("handshake with " +
                         (connection.peer_address.empty() ? "a newcomer" : connection.peer_address),
                     error);
  } catch (...) {
    news.on_stream_end();
    throw;
  }
  return connection;
}

}  // namespace leat::detail
