// A controller at a TCP port, until its boot has been attested.
#pragma once

#include <cstddef>
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

  // Clients that have not proved to be the vendor. When there are so many, the oldest goes.
  static constexpr std::size_t kMostNewcomers = 32;
};

// Hears newcomers, each in a thread and within its limits, until one has proved to be the vendor;
// then sends the others away, serves the vendor, and returns once the attestation kernel is
// enabled. A stranger's connection changes nothing and holds up nobody. If the vendor's connection
// fails, the boot is used up and its error is thrown, because a device attests once per boot.
void serve_until_enabled(int listener, const ControllerService& service);

}  // namespace leat::trusted::remote
