// Why a role of remote attestation ends a session; docs/remote_attestation.md explains each reason.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "leat/error.h"

namespace leat::trusted::remote {

// The numbers are those in message REFUSED.
enum class Refusal : std::uint8_t {
  kMalformed = 1,       // a message that is too long, too short or malformed
  kOrder = 2,           // a message out of order, or a second attestation of one boot
  kNonce = 3,           // not the outstanding nonce, or an expired one
  kDeviceChain = 4,     // the device's certificate is not the manufacturer's, expired or revoked
  kDevice = 5,          // not the requested device
  kBootSignature = 6,   // the boot certificate is not signed with the device's hardware key
  kMeasurement = 7,     // not a program that the vendor allows with its own key embedded
  kFirmware = 8,        // an older version than allowed
  kQuoteSignature = 9,  // the quote is not signed with the key of the boot certificate
  kChannel = 10,        // the two ends of TLS see different channels
  kImage = 11,          // the attestation kernel's image: hash, signature or version
  kEpoch = 12,          // an epoch that this device has had
  kSessions = 13,       // sessions or keys that contradict each other
  kDone = 14,           // DONE does not match what was sent
  kMembers = 15,        // ENABLE names other members or another epoch
  kKernel = 16,  // the attestation kernel's process could not be started, or refused the keys
};
inline constexpr auto kLastRefusal = Refusal::kKernel;

std::string_view to_string(Refusal refusal) noexcept;

// The error of every refusal: kProtocol for malformed messages, kAuthentication for all others.
class Refused : public Error {
 public:
  Refused(Refusal refusal, const std::string& why)
      : Error(refusal == Refusal::kMalformed || refusal == Refusal::kOrder
                  ? ErrorCode::kProtocol
                  : ErrorCode::kAuthentication,
              std::string(to_string(refusal)) + ": " + why),
        refusal_(refusal) {}
  Refusal refusal() const noexcept { return refusal_; }

 private:
  Refusal refusal_;
};

}  // namespace leat::trusted::remote
