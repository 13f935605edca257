#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/quote.h"
#include "base/uri.h"
#include "leat/error.h"
#include "net/tcp.h"
#include "tools/provision.h"
#include "tools/provision_files.h"
#include "trusted/remote/exchange.h"
#include "trusted/remote/plan.h"

namespace leat::tools {

using namespace trusted::remote;  // NOLINT(google-build-using-namespace): this is its program
using leat::detail::Deadline;
using nlohmann::ordered_json;

namespace {

std::string text_of(const std::string& path) {
  const Bytes bytes = read_public_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Which controllers the vendor lets have its secrets: allowed.json in its folder.
struct Allowed {
  std::uint32_t least_firmware = 0;
  std::vector<std::string> measurements;
};

Allowed read_allowed(const std::string& path) {
  try {
    const auto object = nlohmann::json::parse(text_of(path));
    Allowed allowed;
    object.at("least_firmware").get_to(allowed.least_firmware);
    object.at("measurements").get_to(allowed.measurements);
    return allowed;
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::kInvalidArgument,
                leat::detail::quoted(path) + " is not a list of allowed controllers",
                "leat-provision vendor allow writes it.");
  }
}

void write_allowed(const std::string& path, const Allowed& allowed) {
  const std::string text = ordered_json{
      {"least_firmware", allowed.least_firmware},
      {"measurements",
       allowed.measurements}}.dump(2);
  write_file(path, as_bytes(text), false);
}

Digest digest_of(const std::string& hex, const std::string& path) {
  Digest digest{};
  for (std::size_t i = 0; i < digest.size() && hex.size() == 2 * digest.size(); ++i)
    digest[i] = static_cast<std::byte>(std::strtoul(hex.substr(2 * i, 2).c_str(), nullptr, 16));
  if (hex_of(digest) != hex) {
    throw Error(ErrorCode::kInvalidArgument,
                leat::detail::quoted(path) + " has a value that is not a measurement");
  }
  return digest;
}

VendorPolicy read_policy(const VendorRun& command) {
  const std::string path = command.folder + "/allowed.json";
  const Allowed allowed = read_allowed(path);
  VendorPolicy policy;
  policy.authority = read_certificate(command.ca_folder + "/ca.crt");
  policy.revocations = read_revocations(command.ca_folder + "/ca.crl");
  policy.least_firmware = allowed.least_firmware;
  for (const std::string& hex : allowed.measurements)
    policy.measurements.push_back(digest_of(hex, path));
  return policy;
}

// Epochs only rise, also where a run fails: it is on disk before a device hears of it.
std::uint64_t next_epoch(const std::string& path) {
  const std::string text = text_of(path);
  std::uint64_t epoch = 0;
  try {
    epoch = std::stoull(text) + 1;
  } catch (const std::exception&) {
    throw Error(ErrorCode::kInvalidArgument, leat::detail::quoted(path) + " holds no epoch");
  }
  write_file(path, as_bytes(std::to_string(epoch)), false);
  return epoch;
}

// The name of a device in front of what went wrong with it.
[[noreturn]] void rethrow_for(const PlannedDevice& device, const Error& error) {
  throw Error(error.code(), "device " + std::to_string(device.device) + " at " + device.address +
                                ": " + error.what());
}

}  // namespace

void run(const VendorInit& command, bool json) {
  make_folder(command.folder);
  const KeyHandle key = make_key();
  write_private_key(command.folder + "/vendor.key", *key);
  write_public_key(command.folder + "/vendor.pub", *key);
  write_allowed(command.folder + "/allowed.json", {});
  write_file(command.folder + "/epoch", as_bytes("0"), false);
  print({{"vendor", command.folder}, {"pin", hex_of(pin_of(*key))}},
        command.folder + ": a vendor; vendor.pub is for its devices, vendor.key is secret", json);
}

void run(const VendorAllow& command, bool json) {
  const std::string path = command.folder + "/allowed.json";
  Allowed allowed = read_allowed(path);
  const KeyHandle key = read_public_key(command.folder + "/vendor.pub");
  const std::string measurement =
      hex_of(measurement_of({command.version, pin_of(*key), sha384_of_file(command.program)}));
  if (command.only) allowed = {command.version, {}};
  if (std::find(allowed.measurements.begin(), allowed.measurements.end(), measurement) ==
      allowed.measurements.end())
    allowed.measurements.push_back(measurement);
  write_allowed(path, allowed);
  print({{"measurement", measurement}, {"allowed", allowed.measurements.size()}},
        path + ": allows " + std::to_string(allowed.measurements.size()) +
            " controllers, among them " + measurement,
        json);
}

void run(const VendorRun& command, bool json) {
  const Plan plan = parse_plan(text_of(command.plan), command.plan);
  const VendorPolicy policy = read_policy(command);
  const KeyHandle key = read_private_key(command.folder + "/vendor.key");
  Image image{plan.image_id, plan.image_version, sha384_of_file(plan.image_program), {}};
  image.signature = sign(*key, signed_part(image));
  const std::uint64_t epoch = next_epoch(command.folder + "/epoch");
  const std::vector<Secrets> secrets = make_secrets(plan, epoch);
  const Deadline deadline = leat::detail::deadline_after(command.timeout);

  std::vector<VendorConnection> connections;
  std::vector<std::uint32_t> members;
  for (std::size_t i = 0; i < plan.devices.size(); ++i) {
    try {
      connections.emplace_back(
          leat::detail::connect_tcp(leat::detail::parse_uri(plan.devices[i].address), deadline,
                                    true),
          VendorSession(policy, secrets[i], image), *key);
      connections.back().provision(deadline);
      members.push_back(plan.devices[i].device);
    } catch (const Error& error) {
      rethrow_for(plan.devices[i], error);
    }
  }
  // The barrier: nobody attests before all are done.
  ordered_json devices = ordered_json::array();
  std::string text = "epoch " + std::to_string(epoch) + ":";
  for (std::size_t i = 0; i < plan.devices.size(); ++i) {
    try {
      connections[i].enable(members, deadline);
    } catch (const Error& error) {
      rethrow_for(plan.devices[i], error);
    }
    const BootClaims& claims = connections[i].session().claims();
    std::array<unsigned char, 32> reply_key{};
    std::size_t bytes = reply_key.size();
    check_crypto(EVP_PKEY_get_raw_public_key(key_from_seed(secrets[i].reply_key).get(),
                                             reply_key.data(), &bytes),
                 "EVP_PKEY_get_raw_public_key");
    const std::string reply_text = hex_of(std::as_bytes(std::span(reply_key)));
    devices.push_back({{"device", plan.devices[i].device},
                       {"address", plan.devices[i].address},
                       {"boot", hex_of(claims.boot)},
                       {"firmware", claims.firmware_version},
                       {"measurement", hex_of(claims.measurement)},
                       {"reply_key", reply_text},
                       {"sessions", secrets[i].sessions.size()}});
    text += "\n  device " + std::to_string(plan.devices[i].device) + " at " +
            plan.devices[i].address + ": attested, " + std::to_string(secrets[i].sessions.size()) +
            " sessions, enabled; signs replies with " + reply_text;
  }
  print({{"epoch", epoch}, {"devices", std::move(devices)}, {"sessions", plan.sessions.size()}},
        text, json);
}

}  // namespace leat::tools
