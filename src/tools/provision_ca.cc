#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/quote.h"
#include "base/system_error.h"
#include "leat/error.h"
#include "tools/provision.h"
#include "tools/provision_files.h"
#include "trusted/remote/loader.h"

namespace leat::tools {

using namespace trusted::remote;  // NOLINT(google-build-using-namespace): this is its program
using nlohmann::ordered_json;

namespace {

Authority read_authority(const std::string& folder) {
  return {read_private_key(folder + "/ca.key"), read_certificate(folder + "/ca.crt")};
}

}  // namespace

void make_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0) {
    const bool exists = errno == EEXIST;
    throw Error(ErrorCode::kInvalidArgument,
                leat::detail::quoted(path) + (exists ? " exists already" : " cannot be made"),
                "Name a new folder in one that exists.", errno);
  }
}

void print(const ordered_json& object, const std::string& text, bool json) {
  std::cout << (json ? object.dump(2) : text) << std::endl;
}

std::string hex_of(View bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

void run(const CaInit& command, bool json) {
  make_folder(command.folder);
  const std::time_t now = std::time(nullptr);
  const Authority authority = make_authority(command.name, now);
  make_folder(command.folder + "/revoked");
  write_private_key(command.folder + "/ca.key", *authority.key);
  write_certificate(command.folder + "/ca.crt", *authority.certificate);
  write_revocations(command.folder + "/ca.crl", *make_revocation_list(authority, {}, now));
  print({{"ca", command.folder}, {"name", command.name}},
        command.folder + ": a manufacturer; ca.crt and ca.crl are public, ca.key is secret", json);
}

void run(const CaDevice& command, bool json) {
  const Authority authority = read_authority(command.folder);
  make_folder(command.device_folder);
  SecretBytes secret(kHardwareSecretBytes);
  fill_random(secret);
  const CertificateHandle certificate =
      issue_device(authority, command.device, *hardware_key(secret), std::time(nullptr));
  write_file(command.device_folder + "/hardware.secret", secret, true);
  write_certificate(command.device_folder + "/device.crt", *certificate);
  write_record(command.device_folder + "/record", {});
  print({{"device", command.device}, {"folder", command.device_folder}},
        command.device_folder + ": device " + std::to_string(command.device) +
            "; hardware.secret stands for what is burned into it",
        json);
}

void run(const CaFirmware& command, bool json) {
  const SecretBytes secret = read_secret_file(command.device_folder + "/hardware.secret");
  const CertificateHandle certificate = read_certificate(command.device_folder + "/device.crt");
  const Firmware firmware{command.version, pin_of(*read_public_key(command.vendor_key)),
                          sha384_of_file(command.program)};
  write_file(command.device_folder + "/firmware",
             seal_firmware(secret, device_number(*certificate), firmware), false);
  const std::string measurement = hex_of(measurement_of(firmware));
  print({{"device", device_number(*certificate)},
         {"version", command.version},
         {"measurement", measurement}},
        command.device_folder + "/firmware: version " + std::to_string(command.version) +
            ", measurement " + measurement,
        json);
}

void run(const CaRevoke& command, bool json) {
  const Authority authority = read_authority(command.folder);
  const CertificateHandle certificate = read_certificate(command.certificate);
  const std::string device = std::to_string(device_number(*certificate));
  const std::string serial = hex_of(sha384(to_der(*certificate))).substr(0, 32);
  write_certificate(command.folder + "/revoked/" + serial + ".crt", *certificate);
  std::vector<CertificateHandle> revoked;
  for (const auto& entry : std::filesystem::directory_iterator(command.folder + "/revoked"))
    revoked.push_back(read_certificate(entry.path()));
  std::vector<const X509*> list;
  list.reserve(revoked.size());
  for (const CertificateHandle& one : revoked) list.push_back(one.get());
  write_revocations(command.folder + "/ca.crl",
                    *make_revocation_list(authority, list, std::time(nullptr)));
  print({{"device", device_number(*certificate)}, {"revoked", list.size()}},
        command.folder + "/ca.crl: " + std::to_string(list.size()) + " revoked, device " + device +
            " among them",
        json);
}

}  // namespace leat::tools
