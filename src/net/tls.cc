#include "net/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/system_error.h"
#include "leat/error.h"

namespace leat::detail {
namespace {

constexpr std::size_t kMaxRecordBytes = 16 * 1024;

}  // namespace

// OpenSSL's own socket BIO uses write(2), which raises SIGPIPE.
struct TlsStream::SocketMethod {
  static int write(BIO* bio, const char* bytes, int count) {
    auto& io = *static_cast<Io*>(BIO_get_data(bio));
    const ssize_t sent =
        send(io.socket.get(), bytes, static_cast<std::size_t>(count), MSG_NOSIGNAL | MSG_DONTWAIT);
    return finish(bio, io, sent, BIO_FLAGS_WRITE);
  }

  static int read(BIO* bio, char* bytes, int count) {
    auto& io = *static_cast<Io*>(BIO_get_data(bio));
    const ssize_t got = recv(io.socket.get(), bytes, static_cast<std::size_t>(count), MSG_DONTWAIT);
    if (got == 0) io.ended = true;
    return finish(bio, io, got, BIO_FLAGS_READ);
  }

  static long control(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_FLUSH) return 1;
    if (command == BIO_CTRL_EOF) return static_cast<Io*>(BIO_get_data(bio))->ended ? 1 : 0;
    return 0;
  }

  // Made once, never freed: OpenSSL wants an index for it that cannot be given back.
  static BIO_METHOD* get() {
    static BIO_METHOD* const method = [] {
      BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "leat socket");
      BIO_meth_set_write(made, write);
      BIO_meth_set_read(made, read);
      BIO_meth_set_ctrl(made, control);
      return made;
    }();
    return method;
  }

 private:
  static int finish(BIO* bio, Io& io, ssize_t moved, int direction) {
    BIO_clear_retry_flags(bio);
    if (moved >= 0) return static_cast<int>(moved);
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
      BIO_set_flags(bio, direction | BIO_FLAGS_SHOULD_RETRY);
    } else {
      io.error = errno;
    }
    return -1;
  }
};

void TlsStream::Free::operator()(ssl_st* ssl) const { SSL_free(ssl); }

TlsStream::TlsStream(Fd socket, std::unique_ptr<TlsContext> context)
    : context_(std::move(context)) {
  prepare_socket(socket.get());
  io_.socket = std::move(socket);
  stays_.emplace(io_.socket.get());
  ssl_.reset(SSL_new(context_->get()));
  BIO* bio = ssl_ ? BIO_new(SocketMethod::get()) : nullptr;
  if (bio == nullptr) throw Error(ErrorCode::kResource, "OpenSSL gives no stream: " + tls_reason());
  BIO_set_data(bio, &io_);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  if (context_->role() == TlsRole::kActive) {
    SSL_set_connect_state(ssl_.get());
  } else {
    SSL_set_accept_state(ssl_.get());
  }
}

TlsStream::~TlsStream() {
  if (!usable_) return;
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

void TlsStream::handshake(Deadline deadline) {
  constexpr const char* kLate = "the TLS handshake was not finished in time";
  while (const short event = try_handshake()) {
    wait_ready(fd(), event, deadline, kLate);
    if (passed(deadline)) throw Error(ErrorCode::kTimeout, kLate);
  }
}

short TlsStream::try_handshake() {
  ERR_clear_error();
  if (const int result = SSL_do_handshake(ssl_.get()); result != 1) {
    const int reason = SSL_get_error(ssl_.get(), result);
    if (reason == SSL_ERROR_WANT_READ) return POLLIN;
    if (reason == SSL_ERROR_WANT_WRITE) return POLLOUT;
    fail_handshake();
  }
  // Only a handshake by the key counts as a resumed session.
  if (context_->uses_key() && SSL_session_reused(ssl_.get()) != 1) {
    throw Error(ErrorCode::kAuthentication, "TLS handshake failed: the peer did not use the key",
                context_->advice());
  }
  if (const std::string& wanted = context_->protocol(); !wanted.empty()) {
    const unsigned char* chosen = nullptr;
    unsigned bytes = 0;
    SSL_get0_alpn_selected(ssl_.get(), &chosen, &bytes);
    if (bytes != wanted.size() || std::memcmp(chosen, wanted.data(), bytes) != 0) {
      throw Error(ErrorCode::kAuthentication,
                  "TLS handshake failed: the peer does not speak " + wanted);
    }
  }
  usable_ = true;
  return 0;
}

void TlsStream::exported(std::string_view label, std::span<const std::byte> context,
                         std::span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  if (SSL_export_keying_material(ssl_.get(), reinterpret_cast<unsigned char*>(bytes.data()),
                                 bytes.size(), label.data(), label.size(),
                                 reinterpret_cast<const unsigned char*>(context.data()),
                                 context.size(), 1) != 1) {
    fail("export");
  }
}

void TlsStream::fail_handshake() {
  const unsigned long first = ERR_peek_error();
  const int reason = ERR_GET_LIB(first) == ERR_LIB_SSL ? ERR_GET_REASON(first) : 0;
  const long verified = SSL_get_verify_result(ssl_.get());
  const std::string text = tls_reason();
  const std::string start = "TLS handshake failed: ";
  if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST ||
      reason == SSL_R_HTTPS_PROXY_REQUEST || reason == SSL_R_PACKET_LENGTH_TOO_LONG) {
    peer_in_clear_ = true;
    throw Error(ErrorCode::kAuthentication, start + "the peer does not speak TLS (" + text + ")",
                "Set the same tls_* settings on both sides.");
  }
  if (io_.ended) {
    throw Error(ErrorCode::kPeerDied, start + "the peer ended the connection",
                "It may use no TLS, or its log says what it did not like.");
  }
  if (text.empty()) throw system_error("TLS handshake", io_.error != 0 ? io_.error : ECONNRESET);
  const bool bad_certificate = reason == SSL_R_CERTIFICATE_VERIFY_FAILED;
  throw Error(
      ErrorCode::kAuthentication,
      start + text +
          (bad_certificate ? std::string(" (") + X509_verify_cert_error_string(verified) + ")"
                           : std::string()),
      context_->advice());
}

// Any failure after the handshake. The stream is dead afterwards.
void TlsStream::fail(const char* what) {
  usable_ = false;
  const std::string text = tls_reason();
  if (io_.error != 0) throw system_error(std::string(what) + " inside TLS", io_.error);
  if (io_.ended) {
    throw Error(ErrorCode::kPeerDied,
                std::string(what) + " inside TLS failed: the connection was cut");
  }
  throw Error(ErrorCode::kAuthentication,
              std::string(what) + " inside TLS failed: " + (text.empty() ? "stream is dead" : text),
              context_->advice());
}

std::optional<std::size_t> TlsStream::try_read(std::span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  if (!usable_) fail("read");
  ERR_clear_error();
  std::size_t got = 0;
  const int result = SSL_read_ex(ssl_.get(), bytes.data(), bytes.size(), &got);
  if (result == 1) return got;
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return std::nullopt;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    default:
      fail("read");
  }
}

std::optional<std::size_t> TlsStream::try_write(std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  if (!usable_) fail("write");
  bytes = bytes.first(std::min(bytes.size(), kMaxRecordBytes));
  if (!blocked_.empty()) {
    if (bytes.size() < blocked_.size() ||
        !std::equal(blocked_.begin(), blocked_.end(), bytes.begin())) {
      throw Error(ErrorCode::kInvalidArgument,
                  "a write inside TLS that found no room was not repeated with the same bytes");
    }
    bytes = bytes.first(blocked_.size());
  }
  ERR_clear_error();
  std::size_t sent = 0;
  const int result = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &sent);
  if (result == 1) {
    blocked_.clear();
    return sent;
  }
  const int reason = SSL_get_error(ssl_.get(), result);
  if (reason != SSL_ERROR_WANT_WRITE && reason != SSL_ERROR_WANT_READ) fail("write");
  blocked_.assign(bytes.begin(), bytes.end());
  return std::nullopt;
}

// Bytes of the socket may be TLS's own: a close_notify, whose end of the connection is still under
// way, or a new key. Those OpenSSL takes in, so that they do not keep the socket readable; what it
// found in them is therefore remembered.
Lifeline TlsStream::look_as_lifeline() noexcept {
  // Relaxed: nothing else is published by it.
  const Lifeline known = lifeline_.load(std::memory_order_relaxed);
  if (known != Lifeline::kSilent) return known;
  const Lifeline socket = socket_as_lifeline(fd());
  if (socket != Lifeline::kSpoke) return socket;
  const std::lock_guard lock(mutex_);
  ERR_clear_error();
  std::byte one{};
  std::size_t got = 0;
  const int result = SSL_peek_ex(ssl_.get(), &one, 1, &got);
  const int reason = SSL_get_error(ssl_.get(), result);
  ERR_clear_error();
  if (reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE) return Lifeline::kSilent;
  const bool said_goodbye = reason == SSL_ERROR_ZERO_RETURN;
  if (!said_goodbye && reason != SSL_ERROR_NONE) usable_ = false;  // no holder of the key sent it
  const Lifeline found = said_goodbye ? Lifeline::kClosed : Lifeline::kSpoke;
  lifeline_.store(found, std::memory_order_relaxed);
  // What ended it is in OpenSSL now and wakes no sleeper on the socket any more; this does.
  ::shutdown(fd(), SHUT_RD);
  return found;
}

void TlsStream::abort() noexcept { ::shutdown(io_.socket.get(), SHUT_RDWR); }

}  // namespace leat::detail
