#include "support/remote_parties.h"

#include <gtest/gtest.h>

namespace leat::trusted::remote {

void expect_refused(Refusal refusal, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "not refused: " << to_string(refusal);
  } catch (const Refused& refused) {
    EXPECT_EQ(refused.refusal(), refusal) << refused.what();
  }
}

Parties::Parties() : session_keys_(64) {
  folder_.write("controller", "the program of a controller");
  fill_random(session_keys_);
}

Parties::Device Parties::make_device(std::uint32_t number) const {
  Device device;
  device.secret.resize(kHardwareSecretBytes);
  fill_random(device.secret);
  device.certificate = issue_device(manufacturer, number, *hardware_key(device.secret), now);
  return device;
}

Firmware Parties::firmware(std::uint32_t version) const {
  return {version, pin_of(*vendor), sha384_of_file(program_path())};
}

Boot Parties::boot(const Device& device, const Firmware& loaded) const {
  return boot_device(device.secret, to_der(*device.certificate),
                     seal_firmware(device.secret, device_number(*device.certificate), loaded), 0,
                     program_path(), now);
}

VendorPolicy Parties::policy() const {
  VendorPolicy policy;
  policy.authority.reset(X509_dup(manufacturer.certificate.get()));
  policy.revocations = make_revocation_list(manufacturer, {}, now);
  policy.measurements = {measurement_of(firmware(1)), measurement_of(firmware(2))};
  policy.least_firmware = 1;
  return policy;
}

Image Parties::image(std::uint32_t version) const {
  Image image{7, version, sha384(as_bytes("the program of a kernel")), {}};
  image.signature = sign(*vendor, signed_part(image));
  return image;
}

Secrets Parties::secrets(std::uint32_t device, std::uint64_t epoch) const {
  const auto key = [this](std::size_t i) {
    return SecretBytes(session_keys_.begin() + 32 * i, session_keys_.begin() + 32 * (i + 1));
  };
  Secrets secrets;
  secrets.device = device;
  secrets.epoch = epoch;
  secrets.sessions.push_back({1, SessionKind::kPair, 1, 1, 1, {2}, key(0)});
  secrets.sessions.push_back({2, SessionKind::kGroup, 1, 1, 1, {2}, key(1)});
  return secrets;
}

}  // namespace leat::trusted::remote
