// Declared here, defined in shm_device.cc; only device_table.cc calls them.
#pragma once

#include <memory>

#include "verbs/device.h"

namespace leat::detail {

std::unique_ptr<Device> open_shm_device();
DeviceInfo probe_shm_device();

}  // namespace leat::detail
