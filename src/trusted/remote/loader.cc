#include "trusted/remote/loader.h"

#include <algorithm>
#include <utility>

#include "base/quote.h"
#include "base/wire.h"
#include "leat/error.h"

namespace leat::trusted::remote {
namespace {

constexpr std::size_t kFirmwareBytes = 4 + 32 + 48;
constexpr std::size_t kVersionBytes = 4;

Bytes encode(const Firmware& firmware) {
  Bytes bytes(kFirmwareBytes);
  leat::detail::WireWriter writer(bytes);
  writer.number(firmware.version);
  writer.bytes(firmware.vendor, firmware.vendor.size());
  writer.bytes(firmware.program, firmware.program.size());
  return bytes;
}

Firmware parse(View bytes) {
  leat::detail::WireReader reader(bytes);
  Firmware firmware;
  firmware.version = reader.number<std::uint32_t>();
  const View vendor = reader.bytes(firmware.vendor.size());
  std::copy(vendor.begin(), vendor.end(), firmware.vendor.begin());
  const View program = reader.bytes(firmware.program.size());
  std::copy(program.begin(), program.end(), firmware.program.begin());
  return firmware;
}

SecretBytes firmware_key(View secret) { return derive(secret, "TNIC-RA-v1 firmware", 32); }

// What the seal binds beside its content: the device, and the version that stands in clear.
Bytes seal_context(std::uint32_t device, std::uint32_t version) {
  Bytes bytes(8);
  leat::detail::WireWriter writer(bytes);
  writer.number(device);
  writer.number(version);
  return bytes;
}

}  // namespace

Digest measurement_of(const Firmware& firmware) {
  Bytes measured(as_bytes("TNIC-RA-v1 measurement").begin(),
                 as_bytes("TNIC-RA-v1 measurement").end());
  const Bytes bytes = encode(firmware);
  measured.insert(measured.end(), bytes.begin(), bytes.end());
  return sha384(measured);
}

KeyHandle hardware_key(View secret) {
  return key_from_seed(derive(secret, "TNIC-RA-v1 hardware", 32));
}

Bytes seal_firmware(View secret, std::uint32_t device, const Firmware& firmware) {
  Bytes bytes(kVersionBytes);
  leat::detail::WireWriter(bytes).number(firmware.version);
  const Bytes sealed =
      seal(firmware_key(secret), seal_context(device, firmware.version), encode(firmware));
  bytes.insert(bytes.end(), sealed.begin(), sealed.end());
  return bytes;
}

Boot boot_device(SecretBytes secret, View device_certificate, View sealed_firmware,
                 std::uint32_t least_version, const std::string& program_path, std::time_t now) {
  if (secret.size() != kHardwareSecretBytes) {
    throw Error(ErrorCode::kInvalidArgument, "the hardware secret is not 32 bytes long",
                "leat-provision ca device makes one.");
  }
  const CertificateHandle certificate =
      parse_certificate(device_certificate, Refusal::kDeviceChain);
  const KeyHandle hardware = hardware_key(secret);
  if (pin_of(*hardware) != pin_of(*X509_get0_pubkey(certificate.get()))) {
    throw Error(ErrorCode::kAuthentication,
                "the device's certificate and its hardware secret do not belong together");
  }
  const std::uint32_t device = device_number(*certificate);

  if (sealed_firmware.size() < kVersionBytes)
    throw Error(ErrorCode::kAuthentication, "the firmware is too short");
  const auto version =
      leat::detail::WireReader(sealed_firmware.first(kVersionBytes)).number<std::uint32_t>();
  const Bytes plain = unseal(firmware_key(secret), seal_context(device, version),
                             sealed_firmware.subspan(kVersionBytes));
  if (plain.size() != kFirmwareBytes)
    throw Error(ErrorCode::kAuthentication, "the firmware has another size");
  Boot boot;
  boot.device = device;
  boot.firmware = parse(plain);
  if (boot.firmware.version != version || version < least_version) {
    throw Error(ErrorCode::kAuthentication, "firmware version " + std::to_string(version) +
                                                " is refused: this device has had " +
                                                std::to_string(least_version));
  }
  if (sha384_of_file(program_path) != boot.firmware.program) {
    throw Error(ErrorCode::kAuthentication,
                leat::detail::quoted(program_path) + " is not the program of the firmware",
                "Seal firmware for this program: leat-provision ca firmware.");
  }
  boot.controller_key = make_key();
  BootClaims claims{measurement_of(boot.firmware), version, device, {}};
  fill_random(claims.boot);
  boot.boot_certificate =
      to_der(*issue_boot(*hardware, *certificate, *boot.controller_key, claims, now));
  boot.device_certificate.assign(device_certificate.begin(), device_certificate.end());
  return boot;
}

}  // namespace leat::trusted::remote
