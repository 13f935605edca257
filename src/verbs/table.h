// The one table of devices: their names, how they are opened and probed, and when two sides can use
// them stand here and nowhere else.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verbs/row.h"

namespace leat::detail {

// In the order in which they are tried; the last one is kNoDevice.
std::span<const DeviceRow> device_rows();
// The row of "ib" or of "ib:mlx5_0"; null for an unknown one.
const DeviceRow* find_device_row(std::string_view device);
// Their spellings, with commas.
std::string device_spellings();

// Names are those of the rows; `peer_host` as in Route. Throws kUnavailable that says why not.
std::unique_ptr<Device> open_device(const std::string& name, const std::string& peer_host);

// For tests: from now on open_device gives what `decorator` makes of its device; null: the device
// itself. Returns the decorator before. Not while another thread opens a device.
using DeviceDecorator = std::unique_ptr<Device> (*)(std::unique_ptr<Device> device);
DeviceDecorator decorate_devices(DeviceDecorator decorator);

// Every device of this machine, usable or not.
std::vector<DeviceInfo> probe_devices();
// As probe_devices, for one device by its full name.
DeviceInfo probe_device(const std::string& name);
// The devices of this machine that have names, usable or not: "ib:rxe0".
std::vector<std::string> device_names();

}  // namespace leat::detail
