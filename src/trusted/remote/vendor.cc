#include "trusted/remote/vendor.h"

#include <algorithm>
#include <utility>

namespace leat::trusted::remote {

VendorSession::VendorSession(const VendorPolicy& policy, Secrets secrets, const Image& image)
    : policy_(policy),
      secrets_(std::move(secrets)),
      secrets_body_(encode(secrets_)),
      image_body_(encode(image)),
      kernel_(image.digest) {
  parse_secrets(secrets_body_);
}

void VendorSession::enter(State state) {
  if (state_ != state) {
    state_ = State::kOver;
    throw Refused(Refusal::kOrder, "the vendor does not expect this now");
  }
  state_ = State::kOver;
}

Bytes VendorSession::challenge(std::time_t now) {
  enter(State::kNew);
  challenge_ = {secrets_.device, random<Nonce>()};
  asked_at_ = now;
  state_ = State::kAsked;
  return encode(challenge_);
}

Pin VendorSession::accept_quote(View body, std::time_t now) {
  enter(State::kAsked);
  const Quote quote = parse_quote(body);
  if (!same(quote.nonce, challenge_.nonce))
    throw Refused(Refusal::kNonce, "the quote answers another challenge");
  if (now < asked_at_ || now - asked_at_ > kNonceLifetime.count())
    throw Refused(Refusal::kNonce, "the quote came too late");

  const CertificateHandle device_certificate =
      parse_certificate(quote.device_certificate, Refusal::kDeviceChain);
  const CertificateHandle boot_certificate =
      parse_certificate(quote.boot_certificate, Refusal::kBootSignature);
  const DeviceIdentity device =
      check_device_certificate(*device_certificate, *policy_.authority, *policy_.revocations, now);
  if (device.device != secrets_.device) {
    throw Refused(Refusal::kDevice, "asked was " + std::to_string(secrets_.device) +
                                        ", the answer is from " + std::to_string(device.device));
  }
  const BootIdentity boot =
      check_boot_certificate(*boot_certificate, *device_certificate, device, now);
  if (std::find(policy_.measurements.begin(), policy_.measurements.end(),
                boot.claims.measurement) == policy_.measurements.end()) {
    throw Refused(Refusal::kMeasurement,
                  "the device runs another controller, or one that belongs to another vendor");
  }
  if (boot.claims.firmware_version < policy_.least_firmware) {
    throw Refused(Refusal::kFirmware, "version " + std::to_string(boot.claims.firmware_version) +
                                          " is below " + std::to_string(policy_.least_firmware));
  }
  if (!verify(*boot.controller_key, signed_part(challenge_, quote), quote.signature))
    throw Refused(Refusal::kQuoteSignature, "its signature is not of the boot's key");
  claims_ = boot.claims;
  state_ = State::kAttested;
  return pin_of(*boot.controller_key);
}

void VendorSession::accept_bind(View body, const Bind& own) {
  enter(State::kAttested);
  if (!same(parse_bind(body).exported, own.exported))
    throw Refused(Refusal::kChannel, "the controller is at the end of another channel");
  state_ = State::kBound;
}

Bytes VendorSession::image() {
  enter(State::kBound);
  state_ = State::kImageSent;
  return image_body_;
}

SecretBytes VendorSession::secrets() {
  enter(State::kImageSent);
  state_ = State::kSent;
  return secrets_body_;
}

void VendorSession::accept_done(View body) {
  enter(State::kSent);
  const Done done = parse_done(body);
  if (!same(done.nonce, challenge_.nonce) || done.epoch != secrets_.epoch)
    throw Refused(Refusal::kDone, "it is for another session");
  if (!same(done.image_message, sha384(image_body_)) ||
      !same(done.secrets_message, sha384(secrets_body_)))
    throw Refused(Refusal::kDone, "the device has got something else");
  if (!same(done.kernel, kernel_)) throw Refused(Refusal::kDone, "another kernel holds the keys");
  state_ = State::kDone;
}

Bytes VendorSession::enable(const std::vector<std::uint32_t>& members) {
  enter(State::kDone);
  state_ = State::kEnabling;
  return encode(Enable{secrets_.epoch, members});
}

void VendorSession::accept_enabled(View body) {
  enter(State::kEnabling);
  if (parse_enabled(body).epoch != secrets_.epoch)
    throw Refused(Refusal::kDone, "the device has enabled another epoch");
  state_ = State::kEnabled;
}

}  // namespace leat::trusted::remote
