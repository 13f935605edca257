// The controller's side: the program that runs on the device between loader and attestation kernel.
// No I/O: the caller carries the bodies of messages, and a KernelHome starts the attestation
// kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "trusted/remote/loader.h"
#include "trusted/remote/messages.h"

namespace leat::trusted::remote {

// What a device must remember over reboots, so that nothing old is accepted again.
struct DeviceRecord {
  std::uint32_t least_firmware = 0;
  std::uint32_t least_image = 0;
  std::uint64_t last_epoch = 0;
};

// Where the attestation kernel runs. The calls come in this order, each once. Any of them may throw
// Error, which ends the attestation.
class KernelHome {
 public:
  virtual ~KernelHome() = default;
  // Starts the program if it has this digest; returns the measured one.
  virtual Digest start(const Digest& expected) = 0;
  // Passes the keys on and waits until the attestation kernel has taken them.
  virtual void provision(const Secrets& secrets) = 0;
  virtual void enable(const Enable& enable) = 0;
};

// One attestation, for a vendor of unknown identity until TLS proves it to be the firmware's.
// Errors and threads as for VendorSession.
class ControllerSession {
 public:
  // The arguments must outlive it. `save` is called with the record before this session uses
  // anything whose reuse the record forbids, and must have it on disk when it returns.
  ControllerSession(const Boot& boot, EVP_PKEY& vendor_key, DeviceRecord& record,
                    std::function<void(const DeviceRecord&)> save, KernelHome& kernel);

  // Returns QUOTE for CHALLENGE. TLS follows; its other end must have the key boot.firmware.vendor.
  Bytes answer(View challenge_body);
  const Nonce& nonce() const { return nonce_; }
  void accept_bind(View body, const Bind& own);
  void accept_image(View body);
  // Returns DONE.
  Bytes accept_secrets(View body);
  // Returns ENABLED.
  Bytes accept_enable(View body);

  // Once true, this boot has been attested and takes no other vendor's session.
  bool authenticated() const { return authenticated_; }
  bool enabled() const { return state_ == State::kEnabled; }

 private:
  enum class State { kNew, kAnswered, kBound, kImage, kProvisioned, kEnabled, kOver };
  void enter(State state);

  const Boot& boot_;
  EVP_PKEY& vendor_key_;
  DeviceRecord& record_;
  const std::function<void(const DeviceRecord&)> save_;
  KernelHome& kernel_;
  Nonce nonce_{};
  Image image_;
  Digest image_message_{};
  std::uint64_t epoch_ = 0;
  std::vector<std::uint32_t> partners_;  // every device of the sessions
  bool authenticated_ = false;
  State state_ = State::kNew;
};

}  // namespace leat::trusted::remote
