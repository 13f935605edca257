// The certificates of remote attestation: the manufacturer's authority signs one for each device,
// and a device's hardware key signs one for each boot, which states what was booted.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "trusted/remote/crypto.h"
#include "trusted/remote/refusal.h"

namespace leat::trusted::remote {

// What a boot certificate says, in its critical extension.
struct BootClaims {
  Digest measurement{};
  std::uint32_t firmware_version = 0;
  std::uint32_t device = 0;
  std::array<std::byte, 16> boot{};
};
inline constexpr std::size_t kBootClaimsBytes = 72;
// 2.25 followed by a UUID, which needs no registration.
inline constexpr const char* kBootClaimsOid = "2.25.171365304436402501516814914320788749357";

// The manufacturer's: signs devices and lists revoked ones.
struct Authority {
  KeyHandle key;
  CertificateHandle certificate;
};
Authority make_authority(const std::string& name, std::time_t now);
CertificateHandle issue_device(const Authority& authority, std::uint32_t device,
                               const EVP_PKEY& hardware_key, std::time_t now);
// Replaces the previous list; it contains all serial numbers ever revoked.
RevocationHandle make_revocation_list(const Authority& authority,
                                      const std::vector<const X509*>& revoked, std::time_t now);

// The loader's: signed with the hardware key.
CertificateHandle issue_boot(EVP_PKEY& hardware_key, const X509& device_certificate,
                             const EVP_PKEY& controller_key, const BootClaims& claims,
                             std::time_t now);

// A certificate that only carries its key through TLS, which pins the key.
CertificateHandle make_key_carrier(EVP_PKEY& key, std::time_t now);

Bytes to_der(const X509& certificate);
// Strict: accepts only Ed25519, at most kMaxCertificateBytes, no trailing bytes, and only the
// canonical encoding. Throws Refused(`refusal`).
CertificateHandle parse_certificate(View der, Refusal refusal);

// The number of the device that a certificate names, trusted or not. Throws Refused(kDeviceChain)
// if it names none.
std::uint32_t device_number(const X509& certificate);

struct DeviceIdentity {
  std::uint32_t device = 0;
  KeyHandle hardware_key;  // public
};
// Checks that the manufacturer made the device and has not revoked it. Throws
// Refused(kDeviceChain).
DeviceIdentity check_device_certificate(X509& certificate, X509& authority, X509_CRL& revocations,
                                        std::time_t now);

// Returns the claims, true or not. They must occur exactly once, in a critical extension, with
// exactly their size. Throws Refused(kMeasurement).
BootClaims read_claims(const X509& certificate);

struct BootIdentity {
  BootClaims claims;
  KeyHandle controller_key;  // public
};
// Checks that the device signed it. Throws Refused: kBootSignature; kMeasurement for malformed
// claims; kDevice if they name another device.
BootIdentity check_boot_certificate(X509& certificate, X509& device_certificate,
                                    const DeviceIdentity& device, std::time_t now);

}  // namespace leat::trusted::remote
