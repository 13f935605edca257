// The devices that a suite runs on.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "support/peer_pair.h"
#include "verbs/table.h"

namespace leat::detail {

// While it lives, open_device gives what the decorator makes of its device. One at a time.
class DecoratedDevices {
 public:
  explicit DecoratedDevices(DeviceDecorator decorator) : before_(decorate_devices(decorator)) {}
  ~DecoratedDevices() { decorate_devices(before_); }
  DecoratedDevices(const DecoratedDevices&) = delete;
  DecoratedDevices& operator=(const DecoratedDevices&) = delete;

 private:
  const DeviceDecorator before_;
};

// A device of each kind: "shm", and of a kind whose devices have names the one that a variable
// names, "ib:NAME" with LEAT_TEST_IB=NAME. One that is missing is a failure then.
std::vector<std::string> test_devices();
// The same as a part of a test's name: "ib_rxe0".
std::string device_label(const std::string& device);
// The network device below the first port of an ib device.
std::string network_device(const std::string& device);
// The numeric address at which a peer reaches `device`; empty for a device without addresses.
std::string device_address(const std::string& device);

std::string device_test_name(
    const testing::TestParamInfo<std::tuple<std::string, PeerMode>>& parameters);

// Registers the tests of a suite whose parameters are a device and a mode for every device and both
// modes.
#define LEAT_INSTANTIATE_ON_DEVICES(suite)                                         \
  INSTANTIATE_TEST_SUITE_P(                                                        \
      Devices, suite,                                                              \
      testing::Combine(testing::ValuesIn(test_devices()),                          \
                       testing::Values(PeerMode::kThreads, PeerMode::kProcesses)), \
      device_test_name)

}  // namespace leat::detail
