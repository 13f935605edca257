// Remote attestation over sockets: frames, the change from clear to TLS, deadlines.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "net/stream.h"
#include "net/tls.h"
#include "trusted/remote/controller.h"
#include "trusted/remote/vendor.h"

namespace leat::trusted::remote {

inline constexpr const char* kProtocolName = "tnic-ra/1";

struct Received {
  Type type;
  SecretBytes body;
};
// Blocks. Throws kTimeout, kPeerDied, Refused(kMalformed).
Received read_frame(leat::detail::Stream& stream, leat::detail::Deadline deadline);
// Returns the body of a frame that must have that type. If the peer's refusal came instead, throws
// it; for any other type throws Refused(kOrder).
SecretBytes expect_frame(leat::detail::Stream& stream, Type type, leat::detail::Deadline deadline);
void write_frame(leat::detail::Stream& stream, Type type, View body,
                 leat::detail::Deadline deadline);

// The vendor's connection to one device. Owner: one thread. Throws Error and Refused, and tells the
// controller of its own refusals.
class VendorConnection {
 public:
  // `vendor_key`: its public half is in the controller's firmware.
  VendorConnection(leat::detail::Fd socket, VendorSession session, EVP_PKEY& vendor_key);

  // From CHALLENGE to DONE.
  void provision(leat::detail::Deadline deadline);
  // ENABLE and ENABLED.
  void enable(const std::vector<std::uint32_t>& members, leat::detail::Deadline deadline);
  const VendorSession& session() const { return session_; }

 private:
  leat::detail::Fd socket_;
  VendorSession session_;
  EVP_PKEY& vendor_key_;
  std::unique_ptr<leat::detail::TlsStream> stream_;
};

struct ControllerLimits {
  std::chrono::milliseconds authentication{5'000};  // until the vendor has proved its identity
  std::chrono::milliseconds provisioning{
      120'000};  // from there to ENABLE, while other members take part
};

// Serves one connection: CHALLENGE to ENABLED. In two parts: up to where the peer has proved that
// it is the vendor, which changes nothing but the session, and the rest.
std::unique_ptr<leat::detail::TlsStream> admit_vendor(leat::detail::Fd socket,
                                                      ControllerSession& session, const Boot& boot,
                                                      const ControllerLimits& limits);
void serve_admitted(leat::detail::TlsStream& stream, ControllerSession& session,
                    const ControllerLimits& limits);
void serve_vendor(leat::detail::Fd socket, ControllerSession& session, const Boot& boot,
                  const ControllerLimits& limits);

}  // namespace leat::trusted::remote
