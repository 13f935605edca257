// Which peers are admitted: the keys and certificates of the tls_* settings, ready for OpenSSL.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/settings.h"

struct evp_pkey_st;
struct ssl_ctx_st;
struct x509_st;

namespace leat::detail {

enum class TlsRole { kActive, kPassive };

// Whether the settings ask for TLS.
bool tls_wanted(const Settings& settings);

// For two parties that know each other's public key: certificates only carry the keys.
struct TlsPinning {
  evp_pkey_st* key = nullptr;  // this side's, Ed25519; used for its certificate, but not kept
  x509_st* certificate = nullptr;
  std::array<std::byte, 32> peer{};  // SHA-256 of the peer's SubjectPublicKeyInfo
  std::string protocol;              // ALPN: both must name this one
};

// TLS 1.3 with the pre-shared key, with certificates on both sides that the authority signed, or
// with pinned keys. docs/security.md says what is checked in a certificate. No session tickets, no
// resumption, no early data. Immutable after construction; any thread.
class TlsContext {
 public:
  // Reads the files. Throws kInvalidArgument for settings or files that are missing, contradictory
  // or unreadable.
  TlsContext(const Settings& settings, TlsRole role);
  // For the active side, which asks for the listener at `host`, a name or a numeric address. The
  // certificate of another host is refused, unless the settings allow it.
  TlsContext(const Settings& settings, const std::string& host);
  // Ed25519 and X25519 only. Throws kResource.
  TlsContext(const TlsPinning& pinning, TlsRole role);
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  ~TlsContext();

  ssl_ctx_st* get() const { return context_.get(); }
  TlsRole role() const { return role_; }
  bool uses_key() const { return !key_.empty(); }
  const std::vector<unsigned char>& key() const { return key_; }
  // Empty without pinning.
  const std::array<std::byte, 32>& pinned_peer() const { return pinned_peer_; }
  const std::string& protocol() const { return protocol_; }
  // What the user can do when the peer is refused.
  std::string advice() const;

 private:
  struct Free {
    void operator()(ssl_ctx_st* context) const;
  };

  void begin();
  void use_key(const std::string& path);
  void use_certificates(const Settings& settings);
  void expect_host(const std::string& host);

  std::unique_ptr<ssl_ctx_st, Free> context_;
  TlsRole role_;
  std::vector<unsigned char> key_;
  std::array<std::byte, 32> pinned_peer_{};
  std::string protocol_;
  std::string host_;
};

// Returns and empties OpenSSL's error queue of this thread; "" if it is empty.
std::string tls_reason();

}  // namespace leat::detail
