#include "trusted/remote/controller.h"

#include <algorithm>
#include <utility>

namespace leat::trusted::remote {

ControllerSession::ControllerSession(const Boot& boot, EVP_PKEY& vendor_key, DeviceRecord& record,
                                     std::function<void(const DeviceRecord&)> save,
                                     KernelHome& kernel)
    : boot_(boot),
      vendor_key_(vendor_key),
      record_(record),
      save_(std::move(save)),
      kernel_(kernel) {
  if (pin_of(vendor_key) != boot.firmware.vendor) {
    throw Error(ErrorCode::kInvalidArgument, "the vendor's key is not the one of the firmware",
                "Give the public key of the vendor for whom the firmware was sealed.");
  }
}

void ControllerSession::enter(State state) {
  if (state_ != state) {
    state_ = State::kOver;
    throw Refused(Refusal::kOrder, "the controller does not expect this now");
  }
  state_ = State::kOver;
}

Bytes ControllerSession::answer(View challenge_body) {
  enter(State::kNew);
  const Challenge challenge = parse_challenge(challenge_body);
  if (challenge.device != boot_.device) {
    throw Refused(Refusal::kDevice, "asked was " + std::to_string(challenge.device) + ", this is " +
                                        std::to_string(boot_.device));
  }
  Quote quote{challenge.nonce, boot_.device_certificate, boot_.boot_certificate, {}};
  quote.signature = sign(*boot_.controller_key, signed_part(challenge, quote));
  nonce_ = challenge.nonce;
  state_ = State::kAnswered;
  return encode(quote);
}

void ControllerSession::accept_bind(View body, const Bind& own) {
  enter(State::kAnswered);
  if (!same(parse_bind(body).exported, own.exported))
    throw Refused(Refusal::kChannel, "the vendor is at the end of another channel");
  authenticated_ = true;
  state_ = State::kBound;
}

void ControllerSession::accept_image(View body) {
  enter(State::kBound);
  image_ = parse_image(body);
  if (!verify(vendor_key_, signed_part(image_), image_.signature))
    throw Refused(Refusal::kImage, "the vendor has not signed it");
  if (image_.version < record_.least_image) {
    throw Refused(Refusal::kImage, "version " + std::to_string(image_.version) + " is below " +
                                       std::to_string(record_.least_image));
  }
  image_message_ = sha384(body);
  state_ = State::kImage;
}

Bytes ControllerSession::accept_secrets(View body) {
  enter(State::kImage);
  const Secrets secrets = parse_secrets(body);
  if (secrets.device != boot_.device)
    throw Refused(Refusal::kDevice, "the secrets are for device " + std::to_string(secrets.device));
  if (secrets.epoch <= record_.last_epoch) {
    throw Refused(Refusal::kEpoch, "epoch " + std::to_string(secrets.epoch) + " is not above " +
                                       std::to_string(record_.last_epoch));
  }
  record_.last_epoch = secrets.epoch;
  record_.least_image = image_.version;
  record_.least_firmware = std::max(record_.least_firmware, boot_.firmware.version);
  save_(record_);
  const Digest kernel = kernel_.start(image_.digest);
  if (!same(kernel, image_.digest))
    throw Refused(Refusal::kImage, "the kernel's program is another one");
  kernel_.provision(secrets);
  epoch_ = secrets.epoch;
  for (const SessionSecret& session : secrets.sessions) {
    partners_.push_back(session.sender);
    partners_.insert(partners_.end(), session.receivers.begin(), session.receivers.end());
  }
  state_ = State::kProvisioned;
  return encode(Done{nonce_, epoch_, image_message_, sha384(body), kernel});
}

Bytes ControllerSession::accept_enable(View body) {
  enter(State::kProvisioned);
  const Enable enable = parse_enable(body);
  if (enable.epoch != epoch_) throw Refused(Refusal::kMembers, "it is for another epoch");
  for (const std::uint32_t partner : partners_) {
    if (!std::binary_search(enable.members.begin(), enable.members.end(), partner)) {
      throw Refused(Refusal::kMembers,
                    "device " + std::to_string(partner) + " of the sessions is not ready");
    }
  }
  kernel_.enable(enable);
  state_ = State::kEnabled;
  return encode(Enabled{epoch_});
}

}  // namespace leat::trusted::remote
