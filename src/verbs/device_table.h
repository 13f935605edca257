// The one table of devices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "verbs/device.h"

namespace leat::detail {

// Names are "shm", "ib:<verbs device>" and "ib" (the verbs device that routes to `peer_address`,
// a numeric address). Throws kUnavailable that says why, and for an unknown name which there are.
std::unique_ptr<Device> open_device(const std::string& name, const std::string& peer_address);

// Every device of this machine, usable or not; each was probed as far as making a queue pair.
std::vector<DeviceInfo> probe_devices();

// As probe_devices but for one device by its full name; never throws for an unusable one.
DeviceInfo probe_device(const std::string& name);

// The name of the verbs device ("ib:rxe0") that the route from `local_address` or to
// `peer_address` (either may be empty) uses; empty string with `why_not` set if there is none.
std::string ib_device_for_route(const std::string& local_address, const std::string& peer_address,
                                std::string& why_not);

}  // namespace leat::detail
