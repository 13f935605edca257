// The loader: the part of a device that alone uses its hardware secret, at boot, once.
//
// In hardware the secret is burned in and the loader is ROM. Here it is a file, and what follows
// holds as far as nobody else reads that file: docs/remote_attestation.md.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>

#include "trusted/remote/certificates.h"
#include "trusted/remote/crypto.h"

namespace leat::trusted::remote {

inline constexpr std::size_t kHardwareSecretBytes = 32;

// What a controller's firmware is: which program, and whose. Its digest is what is measured.
struct Firmware {
  std::uint32_t version = 0;
  Pin vendor{};      // whom the controller lets in
  Digest program{};  // of the controller's program
};
Digest measurement_of(const Firmware& firmware);

KeyHandle hardware_key(View secret);

// Encrypted for one device; public.
Bytes seal_firmware(View secret, std::uint32_t device, const Firmware& firmware);

// What a boot leaves: all that the controller has of its device.
struct Boot {
  std::uint32_t device = 0;
  Firmware firmware;
  KeyHandle controller_key;  // of this boot only
  Bytes device_certificate;  // DER
  Bytes boot_certificate;
};

// Opens the firmware, measures `program_path`, makes this boot's key and certifies it; the secret
// is wiped when it returns. Throws Error: kAuthentication for firmware of another device or changed
// firmware, below `least_version`, or for another program; kInvalidArgument for unreadable files.
Boot boot_device(SecretBytes secret, View device_certificate, View sealed_firmware,
                 std::uint32_t least_version, const std::string& program_path, std::time_t now);

}  // namespace leat::trusted::remote
