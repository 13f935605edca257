// The devices that a suite runs on.
#pragma once

#include <string>
#include <vector>

namespace leat::detail {

// "shm", and "ib:NAME" if LEAT_TEST_IB=NAME is set: then a device that is missing is a failure.
std::vector<std::string> test_devices();
// The same as a part of a test's name: "ib_rxe0".
std::string device_label(const std::string& device);
// The numeric address at which a peer reaches `device`; empty for a device without addresses.
std::string device_address(const std::string& device);

}  // namespace leat::detail
