// Stands in for the rest of this room in a build without rdma-core, and says so.
#include "leat/error.h"
#include "verbs/ib/row.h"

namespace leat::detail {
namespace {

constexpr const char* kReason =
    "this build of leat has no ib device: rdma-core's headers were missing or LEAT_WITH_IB was "
    "OFF. "
    "Install libibverbs-dev and librdmacm-dev and build again";

}  // namespace

std::unique_ptr<Device> open_ib_device(const std::string& name, const std::string&) {
  throw Error(ErrorCode::kUnavailable, "device " + name + ": " + kReason);
}

std::vector<DeviceInfo> probe_ib_devices() { return {probe_ib_device("ib:*")}; }

DeviceInfo probe_ib_device(const std::string& name) {
  DeviceInfo info;
  info.name = name;
  info.why_not = kReason;
  return info;
}

std::vector<std::string> ib_device_names() { return {}; }

RoutedDevice find_ib_device(const Route&) { return {.why_not = kReason}; }

}  // namespace leat::detail
