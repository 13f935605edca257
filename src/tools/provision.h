// The roles of leat-provision. Each prints its result, as JSON if requested, and throws
// leat::Error.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace leat::tools {

// --- the test manufacturer: a folder with ca.key, ca.crt, ca.crl and the certificates it revoked
struct CaInit {
  std::string folder, name = "leat test manufacturer";
};
struct CaDevice {
  std::string folder, device_folder;
  std::uint32_t device = 0;
};
struct CaFirmware {
  std::string device_folder, vendor_key, program;
  std::uint32_t version = 1;
};
struct CaRevoke {
  std::string folder, certificate;
};
void run(const CaInit& command, bool json);
void run(const CaDevice& command, bool json);
void run(const CaFirmware& command, bool json);
void run(const CaRevoke& command, bool json);

// --- the vendor: a folder with vendor.key, vendor.pub, what it allows, and the last epoch
struct VendorInit {
  std::string folder;
};
struct VendorAllow {
  std::string folder, program;
  std::uint32_t version = 1;
  bool only = false;
};
struct VendorRun {
  std::string folder, ca_folder, plan;
  std::chrono::seconds timeout{30};
};
void run(const VendorInit& command, bool json);
void run(const VendorAllow& command, bool json);
void run(const VendorRun& command, bool json);

// --- a device: the folder that `ca device` made; boots, and serves until its kernel is enabled
struct DeviceRun {
  std::string folder, vendor_key, program, listen = "127.0.0.1:0";
  std::vector<std::string> kernel;
};
void run(const DeviceRun& command, bool json);

}  // namespace leat::tools
