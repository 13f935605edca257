// What this room gives to the table of devices, defined in device.cc. Only verbs/table.cc calls it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "verbs/row.h"

namespace leat::detail {

std::unique_ptr<Device> open_shm_device(const std::string& name, const std::string& peer_host);
std::vector<DeviceInfo> probe_shm_devices();
DeviceInfo probe_shm_device(const std::string& name);
Obstacle shm_obstacle(const HostIdentity& client, const HostIdentity& listener);
bool shm_is_likely(const Route& route);

}  // namespace leat::detail
