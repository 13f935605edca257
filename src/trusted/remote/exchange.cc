#include "trusted/remote/exchange.h"

#include <fcntl.h>

#include <cerrno>
#include <ctime>
#include <utility>

#include "base/system_error.h"

namespace leat::trusted::remote {
namespace {

using leat::detail::Deadline;
using leat::detail::Fd;
using leat::detail::Stream;
using leat::detail::TlsContext;
using leat::detail::TlsRole;
using leat::detail::TlsStream;

// For the peer to take a refusal; others wait meanwhile.
constexpr std::chrono::milliseconds kFarewell{100};

// A second descriptor, for the stream in clear that comes before TLS on the same socket.
std::unique_ptr<Stream> clear_stream(const Fd& socket) {
  Fd copy(fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) throw leat::detail::system_error("fcntl", errno);
  return leat::detail::plain_stream(std::move(copy));
}

std::unique_ptr<TlsStream> begin_tls(Fd socket, EVP_PKEY& key, const Pin& peer, TlsRole role,
                                     Deadline deadline) {
  const CertificateHandle carrier = make_key_carrier(key, std::time(nullptr));
  auto stream = std::make_unique<TlsStream>(
      std::move(socket),
      std::make_unique<TlsContext>(
          leat::detail::TlsPinning{&key, carrier.get(), peer, kProtocolName}, role));
  stream->handshake(deadline);
  return stream;
}

Bind bind_of(TlsStream& stream, const Nonce& nonce) {
  Bind bind;
  stream.exported("EXPORTER-tnic-ra", nonce, bind.exported);
  return bind;
}

// Runs `exchange`; what it refuses, the peer hears as far as it still listens.
template <typename Exchange>
void telling_the_peer(Stream& stream, Exchange exchange) {
  try {
    exchange();
  } catch (const Refused& refused) {
    try {
      write_frame(stream, Type::kRefused, encode(refused.refusal()),
                  leat::detail::deadline_after(kFarewell));
      leat::detail::linger_close(stream, leat::detail::deadline_after(kFarewell));
    } catch (const Error&) {
      // The refusal is what the caller must know.
    }
    throw;
  }
}

}  // namespace

Received read_frame(Stream& stream, Deadline deadline) {
  std::array<std::byte, kFrameHeaderBytes> head;
  leat::detail::read_all(stream, head, deadline);
  const FrameHeader header = parse_frame_header(head);
  Received received{header.type, SecretBytes(header.body_bytes)};
  leat::detail::read_all(stream, received.body, deadline);
  return received;
}

SecretBytes expect_frame(Stream& stream, Type type, Deadline deadline) {
  Received received = read_frame(stream, deadline);
  if (received.type == Type::kRefused) {
    // Not a Refused of our own, which would be told back.
    throw Error(ErrorCode::kAuthentication,
                "the peer refused: " + std::string(to_string(parse_refused(received.body))));
  }
  if (received.type != type)
    throw Refused(Refusal::kOrder, "message " + std::to_string(static_cast<int>(received.type)) +
                                       " instead of " + std::to_string(static_cast<int>(type)));
  return std::move(received.body);
}

void write_frame(Stream& stream, Type type, View body, Deadline deadline) {
  leat::detail::write_all(stream, frame(type, body), deadline);
}

VendorConnection::VendorConnection(Fd socket, VendorSession session, EVP_PKEY& vendor_key)
    : socket_(std::move(socket)), session_(std::move(session)), vendor_key_(vendor_key) {}

void VendorConnection::provision(Deadline deadline) {
  const std::unique_ptr<Stream> clear = clear_stream(socket_);
  Pin controller{};
  telling_the_peer(*clear, [&] {
    write_frame(*clear, Type::kChallenge, session_.challenge(std::time(nullptr)), deadline);
    controller =
        session_.accept_quote(expect_frame(*clear, Type::kQuote, deadline), std::time(nullptr));
  });
  stream_ = begin_tls(std::move(socket_), vendor_key_, controller, TlsRole::kActive, deadline);
  telling_the_peer(*stream_, [&] {
    const Bind bind = bind_of(*stream_, session_.nonce());
    write_frame(*stream_, Type::kBind, encode(bind), deadline);
    session_.accept_bind(expect_frame(*stream_, Type::kBind, deadline), bind);
    write_frame(*stream_, Type::kImage, session_.image(), deadline);
    write_frame(*stream_, Type::kSecrets, session_.secrets(), deadline);
    session_.accept_done(expect_frame(*stream_, Type::kDone, deadline));
  });
}

void VendorConnection::enable(const std::vector<std::uint32_t>& members, Deadline deadline) {
  const Bytes body = session_.enable(members);
  telling_the_peer(*stream_, [&] {
    write_frame(*stream_, Type::kEnable, body, deadline);
    session_.accept_enabled(expect_frame(*stream_, Type::kEnabled, deadline));
  });
}

std::unique_ptr<TlsStream> admit_vendor(Fd socket, ControllerSession& session, const Boot& boot,
                                        const ControllerLimits& limits) {
  const Deadline known = leat::detail::deadline_after(limits.authentication);
  const std::unique_ptr<Stream> clear = clear_stream(socket);
  telling_the_peer(*clear, [&] {
    const Bytes quote = session.answer(expect_frame(*clear, Type::kChallenge, known));
    write_frame(*clear, Type::kQuote, quote, known);
  });
  std::unique_ptr<TlsStream> stream = begin_tls(std::move(socket), *boot.controller_key,
                                                boot.firmware.vendor, TlsRole::kPassive, known);
  telling_the_peer(*stream, [&] {
    const Bind bind = bind_of(*stream, session.nonce());
    write_frame(*stream, Type::kBind, encode(bind), known);
    session.accept_bind(expect_frame(*stream, Type::kBind, known), bind);
  });
  return stream;
}

void serve_admitted(TlsStream& stream, ControllerSession& session, const ControllerLimits& limits) {
  telling_the_peer(stream, [&] {
    const Deadline deadline = leat::detail::deadline_after(limits.provisioning);
    session.accept_image(expect_frame(stream, Type::kImage, deadline));
    const Bytes done = session.accept_secrets(expect_frame(stream, Type::kSecrets, deadline));
    write_frame(stream, Type::kDone, done, deadline);
    const Bytes enabled = session.accept_enable(expect_frame(stream, Type::kEnable, deadline));
    write_frame(stream, Type::kEnabled, enabled, deadline);
  });
}

void serve_vendor(Fd socket, ControllerSession& session, const Boot& boot,
                  const ControllerLimits& limits) {
  serve_admitted(*admit_vendor(std::move(socket), session, boot, limits), session, limits);
}

}  // namespace leat::trusted::remote
