// Declared here, defined in ib_device.cc, or in ib_missing.cc for a build without rdma-core. Only
// device_table.cc calls them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "verbs/device.h"

namespace leat::detail {

// `verbs_name` as ibv_devices prints it ("mlx5_0").
std::unique_ptr<Device> open_ib_device(const std::string& verbs_name);
std::vector<DeviceInfo> probe_ib_devices();
DeviceInfo probe_ib_device(const std::string& verbs_name);

}  // namespace leat::detail
