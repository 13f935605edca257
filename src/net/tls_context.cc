#include "net/tls_context.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstring>
#include <memory>

#include "base/key_file.h"
#include "base/quote.h"
#include "leat/error.h"

namespace leat::detail {
namespace {

constexpr std::size_t kMinKeyBytes = 16;
constexpr std::size_t kMaxKeyBytes = 256;  // OpenSSL's limit of a pre-shared key
constexpr std::size_t kLongKeyBytes = 32;  // from here on the 256-bit cipher
constexpr char kIdentity[] = "leat";

bool long_key(const TlsContext& context) { return context.key().size() >= kLongKeyBytes; }

// The session that stands for the pre-shared key. Null without memory.
SSL_SESSION* key_session(SSL* ssl) {
  const auto& context = *static_cast<const TlsContext*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  const unsigned char id[] = {0x13, static_cast<unsigned char>(long_key(context) ? 0x02 : 0x01)};
  SSL_SESSION* session = SSL_SESSION_new();
  if (session == nullptr) return nullptr;
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, id);
  if (cipher == nullptr ||
      SSL_SESSION_set1_master_key(session, context.key().data(), context.key().size()) != 1 ||
      SSL_SESSION_set_cipher(session, cipher) != 1 ||
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
    SSL_SESSION_free(session);
    return nullptr;
  }
  return session;
}

int offer_key(SSL* ssl, const EVP_MD*, const unsigned char** identity, std::size_t* identity_bytes,
              SSL_SESSION** session) {
  *session = key_session(ssl);
  *identity = reinterpret_cast<const unsigned char*>(kIdentity);
  *identity_bytes = std::strlen(kIdentity);
  return *session != nullptr ? 1 : 0;
}

int find_key(SSL* ssl, const unsigned char* identity, std::size_t identity_bytes,
             SSL_SESSION** session) {
  *session = nullptr;
  const bool ours = identity_bytes == std::strlen(kIdentity) &&
                    std::memcmp(identity, kIdentity, identity_bytes) == 0;
  if (ours) *session = key_session(ssl);
  return ours && *session == nullptr ? 0 : 1;
}

// Instead of OpenSSL's check of a chain: the peer's key is the pinned one. That the peer has its
// private half is what TLS itself proves.
int check_pin(X509_STORE_CTX* store, void*) {
  const auto* ssl = static_cast<const SSL*>(
      X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  const auto& context = *static_cast<const TlsContext*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  const EVP_PKEY* key = X509_get0_pubkey(X509_STORE_CTX_get0_cert(store));
  std::array<std::byte, 32> pin{};
  unsigned char* der = nullptr;
  const int bytes = key != nullptr ? i2d_PUBKEY(key, &der) : 0;
  const bool hashed = bytes > 0 && EVP_Digest(der, static_cast<std::size_t>(bytes),
                                              reinterpret_cast<unsigned char*>(pin.data()), nullptr,
                                              EVP_sha256(), nullptr) == 1;
  OPENSSL_free(der);
  if (hashed && pin == context.pinned_peer()) return 1;
  X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_UNTRUSTED);
  return 0;
}

// For an encrypted key: OpenSSL would ask for its passphrase at the terminal.
int no_passphrase(char*, int, int, void*) { return 0; }

// The listener's side of ALPN; the active side finds none chosen after the handshake.
int choose_protocol(SSL* ssl, const unsigned char** chosen, unsigned char* chosen_bytes,
                    const unsigned char* offered, unsigned offered_bytes, void*) {
  const auto& context = *static_cast<const TlsContext*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  const std::string& wanted = context.protocol();
  for (unsigned at = 0; at < offered_bytes; at += 1U + offered[at]) {
    if (at + 1U + offered[at] <= offered_bytes && offered[at] == wanted.size() &&
        std::memcmp(offered + at + 1, wanted.data(), wanted.size()) == 0) {
      *chosen = offered + at + 1;
      *chosen_bytes = offered[at];
      return SSL_TLSEXT_ERR_OK;
    }
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

}  // namespace

bool tls_wanted(const Settings& settings) {
  return !settings.tls_psk_file.empty() || !settings.tls_cert_file.empty() ||
         !settings.tls_key_file.empty() || !settings.tls_ca_file.empty();
}

std::string tls_reason() {
  std::string text;
  while (const unsigned long code = ERR_get_error()) {
    const char* reason = ERR_reason_error_string(code);
    if (!text.empty()) text += "; ";
    text += reason != nullptr ? std::string(reason) : "error " + std::to_string(code);
  }
  return text;
}

void TlsContext::Free::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }

TlsContext::TlsContext(const Settings& settings, TlsRole role) : role_(role) {
  const bool certificates = !settings.tls_cert_file.empty() || !settings.tls_key_file.empty() ||
                            !settings.tls_ca_file.empty();
  if (!settings.tls_psk_file.empty() && certificates) {
    throw Error(ErrorCode::kInvalidArgument,
                "tls_psk_file and certificates are both set, but a connection uses one of them",
                "Set either tls_psk_file, or tls_cert_file, tls_key_file and tls_ca_file.");
  }
  begin();
  if (certificates) {
    use_certificates(settings);
  } else {
    use_key(settings.tls_psk_file);
  }
}

TlsContext::TlsContext(const Settings& settings, const std::string& host)
    : TlsContext(settings, TlsRole::kActive) {
  if (!uses_key() && settings.tls_check_names) expect_host(host);
}

TlsContext::TlsContext(const TlsPinning& pinning, TlsRole role)
    : role_(role), pinned_peer_(pinning.peer), protocol_(pinning.protocol) {
  begin();
  SSL_CTX* const context = context_.get();
  SSL_CTX_set_cert_verify_callback(context, check_pin, nullptr);
  std::vector<unsigned char> offered{static_cast<unsigned char>(protocol_.size())};
  offered.insert(offered.end(), protocol_.begin(), protocol_.end());
  SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
  // That function alone says 0 when it has worked.
  if (SSL_CTX_use_certificate(context, pinning.certificate) != 1 ||
      SSL_CTX_use_PrivateKey(context, pinning.key) != 1 ||
      SSL_CTX_set1_sigalgs_list(context, "ed25519") != 1 ||
      SSL_CTX_set1_groups_list(context, "X25519") != 1 ||
      SSL_CTX_set_alpn_protos(context, offered.data(), static_cast<unsigned>(offered.size())) !=
          0) {
    throw Error(ErrorCode::kResource, "OpenSSL takes no pinned key: " + tls_reason());
  }
}

void TlsContext::begin() {
  context_.reset(
      SSL_CTX_new(role_ == TlsRole::kActive ? TLS_client_method() : TLS_server_method()));
  if (!context_) throw Error(ErrorCode::kResource, "OpenSSL gives no context: " + tls_reason());
  SSL_CTX_set_app_data(context_.get(), this);
  SSL_CTX_set_min_proto_version(context_.get(), TLS1_3_VERSION);
  SSL_CTX_set_session_cache_mode(context_.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context_.get(), SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context_.get(), 0);
  SSL_CTX_set_mode(context_.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // With a key too: then there is no authority, so that no certificate can stand in for the key.
  SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
}

std::string TlsContext::advice() const {
  if (uses_key()) return "Both sides need the same key in tls_psk_file.";
  if (!protocol_.empty()) return "Each side must know the other's public key.";
  const std::string names = " The listener's must name " + quoted(host_) +
                            " (subjectAltName); tls_check_names=no accepts any.";
  return "Each side's certificate must be signed by the authority in the other side's "
         "tls_ca_file." +
         (host_.empty() ? std::string() : names);
}

TlsContext::~TlsContext() { OPENSSL_cleanse(key_.data(), key_.size()); }

void TlsContext::use_key(const std::string& path) {
  key_ = read_key_file({"tls_psk_file", path, kMinKeyBytes, kMaxKeyBytes});
  // One cipher, because a pre-shared key belongs to the hash of one.
  SSL_CTX_set_ciphersuites(context_.get(),
                           long_key(*this) ? "TLS_AES_256_GCM_SHA384" : "TLS_AES_128_GCM_SHA256");
  if (role_ == TlsRole::kActive) {
    SSL_CTX_set_psk_use_session_callback(context_.get(), offer_key);
  } else {
    SSL_CTX_set_psk_find_session_callback(context_.get(), find_key);
    // A listener must name what may be resumed, and takes a key for a session to resume.
    SSL_CTX_set_session_id_context(context_.get(),
                                   reinterpret_cast<const unsigned char*>(kIdentity),
                                   static_cast<unsigned>(std::strlen(kIdentity)));
  }
}

void TlsContext::expect_host(const std::string& host) {
  host_ = host.substr(0, host.find('%'));  // of a link-local address the interface is this host's
  X509_VERIFY_PARAM* const wanted = SSL_CTX_get0_param(context_.get());
  X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  // An address is not a name: it must stand in the certificate as an address.
  if (X509_VERIFY_PARAM_set1_ip_asc(wanted, host_.c_str()) == 1) return;
  ERR_clear_error();
  if (X509_VERIFY_PARAM_set1_host(wanted, host_.c_str(), host_.size()) != 1)
    throw Error(ErrorCode::kInvalidArgument,
                quoted(host) + " cannot be the name in a certificate: " + tls_reason());
}

void TlsContext::use_certificates(const Settings& settings) {
  const struct {
    const char* setting;
    const std::string& path;
  } files[] = {{"tls_cert_file", settings.tls_cert_file},
               {"tls_key_file", settings.tls_key_file},
               {"tls_ca_file", settings.tls_ca_file}};
  for (const auto& file : files) {
    if (file.path.empty()) {
      throw Error(ErrorCode::kInvalidArgument, std::string(file.setting) + " is missing",
                  "TLS with certificates needs tls_cert_file, tls_key_file and tls_ca_file.");
    }
  }
  const Fd key_file = open_secret("tls_key_file", settings.tls_key_file);
  SSL_CTX_set_default_passwd_cb(context_.get(), no_passphrase);
  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(context_.get(), settings.tls_cert_file.c_str()) != 1) {
    refuse_file("tls_cert_file", settings.tls_cert_file, tls_reason(), "It must be PEM.");
  }
  // From the file that was looked at, whatever its name means by now.
  const std::unique_ptr<BIO, decltype(&BIO_free)> pem(BIO_new_fd(key_file.get(), BIO_NOCLOSE),
                                                      BIO_free);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      pem ? PEM_read_bio_PrivateKey(pem.get(), nullptr, no_passphrase, nullptr) : nullptr,
      EVP_PKEY_free);
  if (!key || SSL_CTX_use_PrivateKey(context_.get(), key.get()) != 1) {
    refuse_file("tls_key_file", settings.tls_key_file, tls_reason(),
                "It must be PEM, not encrypted, and the key of tls_cert_file.");
  }
  if (SSL_CTX_load_verify_locations(context_.get(), settings.tls_ca_file.c_str(), nullptr) != 1) {
    refuse_file("tls_ca_file", settings.tls_ca_file, tls_reason(), "It must be PEM.");
  }
}

}  // namespace leat::detail
