// A controller at a TCP port, until its boot has been attested.
#pragma once

#include <functional>
#include <string>

#include "trusted/remote/controller.h"
#include "trusted/remote/exchange.h"

namespace leat::trusted::remote {

struct ControllerService {
  const Boot& boot;
  EVP_PKEY& vendor_key;
  DeviceRecord& record;
  std::function<void(const DeviceRecord&)> save;
  KernelHome& kernel;
  ControllerLimits limits = {};
  // Called for every client that was sent away before TLS had proved it to be the vendor.
  std::function<void(const std::string& why)> on_stranger = {};
};

// Serves one connection at a time, each within its limits, and returns once the attestation kernel
// is enabled. A stranger's connection changes nothing. If the vendor's connection fails, the boot
// is used up and its error is thrown, because a device attests once per boot.
void serve_until_enabled(int listener, const ControllerService& service);

}  // namespace leat::trusted::remote
