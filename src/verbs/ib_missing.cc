// Stands in for ib_device.cc in a build without rdma-core, and says so.
#include "leat/error.h"
#include "verbs/ib_device.h"

namespace leat::detail {
namespace {

constexpr const char* kReason =
    "this build of leat has no ib device: rdma-core's headers were missing or LEAT_WITH_IB was "
    "OFF. "
    "Install libibverbs-dev and librdmacm-dev and build again";

}  // namespace

std::unique_ptr<Device> open_ib_device(const std::string& verbs_name) {
  throw Error(ErrorCode::kUnavailable, "device ib:" + verbs_name + ": " + kReason);
}

std::vector<DeviceInfo> probe_ib_devices() { return {probe_ib_device("*")}; }

DeviceInfo probe_ib_device(const std::string& verbs_name) {
  DeviceInfo info;
  info.name = "ib:" + verbs_name;
  info.why_not = kReason;
  return info;
}

std::string ib_device_for_route(const std::string&, const std::string&, std::string& why_not) {
  why_not = kReason;
  return {};
}

}  // namespace leat::detail
