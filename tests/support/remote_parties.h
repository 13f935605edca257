// Manufacturer, vendor and devices of remote attestation, in memory.
#pragma once

#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/scratch.h"
#include "trusted/remote/controller.h"
#include "trusted/remote/vendor.h"

namespace leat::trusted::remote {

// EXPECTs that the call throws Refused with that reason.
void expect_refused(Refusal refusal, const std::function<void()>& call);

// A kernel that only remembers what it was told.
class RememberingKernel final : public KernelHome {
 public:
  explicit RememberingKernel(const Digest& program) : program_(program) {}
  Digest start(const Digest&) override { return program_; }
  void provision(const Secrets& secrets) override {
    ++provisioned;
    epoch = secrets.epoch;
    sessions = secrets.sessions;
  }
  void enable(const Enable& enable) override { members = enable.members; }

  int provisioned = 0;
  std::uint64_t epoch = 0;
  std::vector<SessionSecret> sessions;
  std::vector<std::uint32_t> members;  // empty: not enabled

 private:
  Digest program_;
};

// Devices 1, 2, ... of one manufacturer and one vendor, with the sessions pair 1 (devices 1 and 2)
// and group 2 (sender 1, receiver 2). Owner: a test.
class Parties {
 public:
  struct Device {
    SecretBytes secret;
    CertificateHandle certificate;
  };

  Parties();

  Device make_device(std::uint32_t number) const;
  Firmware firmware(std::uint32_t version = 1) const;
  Boot boot(const Device& device, const Firmware& loaded) const;
  Boot boot(std::uint32_t number) const { return boot(make_device(number), firmware()); }
  std::string program_path() const { return folder_.path() + "/controller"; }

  VendorPolicy policy() const;
  Image image(std::uint32_t version = 1) const;
  Secrets secrets(std::uint32_t device, std::uint64_t epoch = 1) const;

  std::time_t now = std::time(nullptr);
  Authority manufacturer = make_authority("Test manufacturer", now);
  KeyHandle vendor = make_key();

 private:
  leat::detail::ScratchFolder folder_;
  SecretBytes session_keys_;
};

// A controller on a boot, with its record and its kernel.
struct ControllerSide {
  explicit ControllerSide(const Parties& parties, std::uint32_t device = 1)
      : ControllerSide(parties, parties.boot(device)) {}
  ControllerSide(const Parties& parties, Boot booted)
      : boot(std::move(booted)), kernel(parties.image().digest), vendor_key(*parties.vendor) {
    begin();
  }
  // A new session on the same boot.
  void begin() {
    session.emplace(
        boot, vendor_key, record, [this](const DeviceRecord& r) { saved = r; }, kernel);
  }

  Boot boot;
  DeviceRecord record;
  DeviceRecord saved;
  RememberingKernel kernel;
  EVP_PKEY& vendor_key;
  std::optional<ControllerSession> session;
};

}  // namespace leat::trusted::remote
