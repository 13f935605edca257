// The vendor's side of attesting and provisioning one device: what it checks, in which order. No
// I/O: the caller carries the bodies of messages.
#pragma once

#include <chrono>
#include <ctime>
#include <vector>

#include "trusted/remote/certificates.h"
#include "trusted/remote/messages.h"

namespace leat::trusted::remote {

inline constexpr std::chrono::seconds kNonceLifetime{60};

// What a vendor trusts. Constant while sessions use it.
struct VendorPolicy {
  CertificateHandle authority;       // the manufacturer's
  RevocationHandle revocations;      // its current list
  std::vector<Digest> measurements;  // of controllers with the vendor's own key embedded
  std::uint32_t least_firmware = 0;
};

// One attestation of one device. When an accept_ call throws Refused, the session is over: every
// later call throws kOrder, as does a call at the wrong time. Owner: one thread.
class VendorSession {
 public:
  // Throws Refused(kSessions) for secrets that the device would refuse. `policy` must outlive it.
  VendorSession(const VendorPolicy& policy, Secrets secrets, const Image& image);

  std::uint32_t device() const { return secrets_.device; }
  std::uint64_t epoch() const { return secrets_.epoch; }

  // In clear: returns CHALLENGE; QUOTE must come back. accept_quote returns the key that TLS must
  // find at the other end.
  Bytes challenge(std::time_t now);
  Pin accept_quote(View body, std::time_t now);

  // Inside TLS. The nonce is the exporter's context at both ends.
  const Nonce& nonce() const { return challenge_.nonce; }
  void accept_bind(View body, const Bind& own);
  Bytes image();
  SecretBytes secrets();
  void accept_done(View body);

  // Once every member has sent DONE: returns ENABLE; ENABLED must come back.
  Bytes enable(const std::vector<std::uint32_t>& members);
  void accept_enabled(View body);

  bool done() const { return state_ >= State::kDone && state_ != State::kOver; }
  bool enabled() const { return state_ == State::kEnabled; }
  // Of the attested boot.
  const BootClaims& claims() const { return claims_; }

 private:
  enum class State {
    kNew,
    kAsked,
    kAttested,
    kBound,
    kImageSent,
    kSent,
    kDone,
    kEnabling,
    kEnabled,
    kOver
  };
  // Throws kOrder if the session is not in `state`; otherwise the session is over unless the caller
  // succeeds.
  void enter(State state);

  const VendorPolicy& policy_;
  const Secrets secrets_;
  const SecretBytes secrets_body_;
  const Bytes image_body_;
  const Digest kernel_;
  Challenge challenge_;
  std::time_t asked_at_ = 0;
  BootClaims claims_;
  State state_ = State::kNew;
};

}  // namespace leat::trusted::remote
