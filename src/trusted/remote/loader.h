// The loader: the only part of a device that uses its hardware secret, once in each boot.
//
// In hardware the secret is burned in and the loader is ROM. Here the secret is a file, and all
// guarantees hold as long as nobody else reads it: docs/remote_attestation.md.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>

#include "trusted/remote/certificates.h"
#include "trusted/remote/crypto.h"

namespace leat::trusted::remote {

inline constexpr std::size_t kHardwareSecretBytes = 32;

// A controller's firmware: its program and its vendor. The measurement is its digest.
struct Firmware {
  std::uint32_t version = 0;
  Pin vendor{};      // the vendor that the controller admits
  Digest program{};  // of the controller's program
};
Digest measurement_of(const Firmware& firmware);

KeyHandle hardware_key(View secret);

// Encrypted for one device; public.
Bytes seal_firmware(View secret, std::uint32_t device, const Firmware& firmware);

// What a boot produces: everything that the controller has of its device.
struct Boot {
  std::uint32_t device = 0;
  Firmware firmware;
  KeyHandle controller_key;  // for this boot only
  Bytes device_certificate;  // DER
  Bytes boot_certificate;
};

// Opens the firmware, measures `program_path`, makes this boot's key and certifies it; wipes the
// secret before it returns. Throws Error: kAuthentication for firmware that was changed, is of
// another device or another program, or is older than `least_version`; kInvalidArgument for
// unreadable files.
Boot boot_device(SecretBytes secret, View device_certificate, View sealed_firmware,
                 std::uint32_t least_version, const std::string& program_path, std::time_t now);

}  // namespace leat::trusted::remote
