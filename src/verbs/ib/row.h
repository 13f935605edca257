// What this room gives to the table of devices: defined in device.cc, probe.cc and connect.cc, or
// in missing.cc for a build without rdma-core. Only verbs/table.cc, this room and tests call it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "verbs/row.h"

namespace leat::detail {

// `name`: "ib:mlx5_0" with a name as ibv_devices prints it; to open perhaps with a port
// ("ib:mlx5_0:2": its connections use no other), or "ib", the device that routes to `peer_host`.
std::unique_ptr<Device> open_ib_device(const std::string& name, const std::string& peer_host);
std::vector<DeviceInfo> probe_ib_devices();
DeviceInfo probe_ib_device(const std::string& name);
std::vector<std::string> ib_device_names();
RoutedDevice find_ib_device(const Route& route);

}  // namespace leat::detail
