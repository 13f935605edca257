#include "verbs/device_table.h"

#include <string_view>

#include "leat/error.h"
#include "verbs/ib_device.h"
#include "verbs/shm_device.h"

namespace leat::detail {
namespace {

constexpr std::string_view kIbPrefix = "ib:";

Error unknown_device(const std::string& name) {
  return {ErrorCode::kUnavailable, "no device is named '" + name + "'",
          "There are: shm, ib:NAME for the devices that ibv_devices lists, and ib for the one that "
          "routes to the peer. leat-info -d shows them."};
}

}  // namespace

const char* to_string(CompletionStatus status) {
  switch (status) {
    case CompletionStatus::kSuccess:
      return "success";
    case CompletionStatus::kRemoteAccess:
      return "remote access error";
    case CompletionStatus::kLocalAccess:
      return "local protection error";
    case CompletionStatus::kLength:
      return "length error";
    case CompletionStatus::kPeerGone:
      return "peer gone (retries exhausted or disconnected)";
    case CompletionStatus::kFlushed:
      return "flushed (the queue pair was in error)";
    case CompletionStatus::kOther:
      return "other error";
  }
  return "unknown";
}

std::unique_ptr<Device> open_device(const std::string& name, const std::string& peer_address) {
  if (name == "shm") return open_shm_device();
  if (name.starts_with(kIbPrefix)) return open_ib_device(name.substr(kIbPrefix.size()));
  if (name == "ib") {
    std::string why_not;
    const std::string routed = ib_device_for_route({}, peer_address, why_not);
    if (routed.empty()) throw Error(ErrorCode::kUnavailable, "device ib: " + why_not);
    return open_ib_device(routed.substr(kIbPrefix.size()));
  }
  throw unknown_device(name);
}

std::vector<DeviceInfo> probe_devices() {
  std::vector<DeviceInfo> devices{probe_shm_device()};
  for (DeviceInfo& info : probe_ib_devices()) devices.push_back(std::move(info));
  return devices;
}

DeviceInfo probe_device(const std::string& name) {
  if (name == "shm") return probe_shm_device();
  if (name.starts_with(kIbPrefix)) return probe_ib_device(name.substr(kIbPrefix.size()));
  DeviceInfo info;
  info.name = name;
  info.why_not = unknown_device(name).what();
  return info;
}

}  // namespace leat::detail
