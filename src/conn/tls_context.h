// Who may talk to us: the keys and certificates of the tls_* settings, ready for OpenSSL.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/settings.h"

struct ssl_ctx_st;

namespace leat::detail {

enum class TlsRole { kActive, kPassive };

// Whether the settings ask for TLS.
bool tls_wanted(const Settings& settings);

// TLS 1.3 with the pre-shared key, or with certificates on both sides which the authority signed;
// host names in certificates are not compared, the authority alone decides who belongs. No session
// tickets, no resumption, no early data. Immutable after construction; any thread.
class TlsContext {
 public:
  // Reads the files. Throws kInvalidArgument for what is missing, contradictory or unreadable.
  TlsContext(const Settings& settings, TlsRole role);
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  ~TlsContext();

  ssl_ctx_st* get() const { return context_.get(); }
  TlsRole role() const { return role_; }
  bool uses_key() const { return !key_.empty(); }
  const std::vector<unsigned char>& key() const { return key_; }

 private:
  struct Free {
    void operator()(ssl_ctx_st* context) const;
  };

  void use_key(const std::string& path);
  void use_certificates(const Settings& settings);

  std::unique_ptr<ssl_ctx_st, Free> context_;
  TlsRole role_;
  std::vector<unsigned char> key_;
};

// What OpenSSL's error queue of this thread says, and empties it; "" if it is empty.
std::string tls_reason();

}  // namespace leat::detail
