#include "conn/tls_context.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <cstring>

#include "base/key_file.h"
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
  context_.reset(SSL_CTX_new(role == TlsRole::kActive ? TLS_client_method() : TLS_server_method()));
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
  if (certificates) {
    use_certificates(settings);
  } else {
    use_key(settings.tls_psk_file);
  }
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
  open_secret("tls_key_file", settings.tls_key_file);
  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(context_.get(), settings.tls_cert_file.c_str()) != 1) {
    refuse_file("tls_cert_file", settings.tls_cert_file, tls_reason(), "It must be PEM.");
  }
  if (SSL_CTX_use_PrivateKey_file(context_.get(), settings.tls_key_file.c_str(),
                                  SSL_FILETYPE_PEM) != 1) {
    refuse_file("tls_key_file", settings.tls_key_file, tls_reason(),
                "It must be PEM, not encrypted, and the key of tls_cert_file.");
  }
  if (SSL_CTX_load_verify_locations(context_.get(), settings.tls_ca_file.c_str(), nullptr) != 1) {
    refuse_file("tls_ca_file", settings.tls_ca_file, tls_reason(), "It must be PEM.");
  }
}

}  // namespace leat::detail
