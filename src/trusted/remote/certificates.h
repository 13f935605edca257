// The certificates of remote attestation: the manufacturer's authority signs each device's, and a
// device's hardware key signs one for each boot, which says what was booted.
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

// The manufacturer's: signs devices and says which are revoked.
struct Authority {
  KeyHandle key;
  CertificateHandle certificate;
};
Authority make_authority(const std::string& name, std::time_t now);
CertificateHandle issue_device(const Authority& authority, std::uint32_t device,
                               const EVP_PKEY& hardware_key, std::time_t now);
// Replaces the one before; the list names all serial numbers that were ever revoked.
RevocationHandle make_revocation_list(const Authority& authority,
                                      const std::vector<const X509*>& revoked, std::time_t now);

// The loader's: signed with the hardware key.
CertificateHandle issue_boot(EVP_PKEY& hardware_key, const X509& device_certificate,
                             const EVP_PKEY& controller_key, const BootClaims& claims,
                             std::time_t now);

// A certificate that only carries its key through TLS, which pins the key.
CertificateHandle make_key_carrier(EVP_PKEY& key, std::time_t now);

Bytes to_der(const X509& certificate);
// Strict: Ed25519 only, at most kMaxCertificateBytes, nothing behind it and the one encoding that
// it has. Throws Refused(`refusal`).
CertificateHandle parse_certificate(View der, Refusal refusal);

// The number of the device that a certificate is for; trust is another question. Throws
// Refused(kDeviceChain) if it names none.
std::uint32_t device_number(const X509& certificate);

struct DeviceIdentity {
  std::uint32_t device = 0;
  KeyHandle hardware_key;  // public
};
// Whether the manufacturer made that device and has not revoked it. Throws Refused(kDeviceChain).
DeviceIdentity check_device_certificate(X509& certificate, X509& authority, X509_CRL& revocations,
                                        std::time_t now);

// The claims, which must be there once, in a critical extension, and of their size to the byte.
// Throws Refused(kMeasurement). Whether they are true is another question.
BootClaims read_claims(const X509& certificate);

struct BootIdentity {
  BootClaims claims;
  KeyHandle controller_key;  // public
};
// Whether that device signed it. Throws Refused: kBootSignature, kMeasurement for the form of the
// claims, kDevice if they name another device.
BootIdentity check_boot_certificate(X509& certificate, X509& device_certificate,
                                    const DeviceIdentity& device, std::time_t now);

}  // namespace leat::trusted::remote
