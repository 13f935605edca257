// What a verbs device can do here, found by trying it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <vector>

#include "verbs/device.h"
#include "verbs/ib_address.h"
#include "verbs/ib_call.h"

namespace leat::detail {

struct IbProbe {
  DeviceInfo info;
  Limits limits;
  std::uint8_t port = 1;  // the first that is active
  ibv_mtu mtu = IBV_MTU_1024;
  std::uint8_t reads = 0;  // outstanding on one queue pair, each way
};

// The devices of librdmacm, whose contexts all connections of the process share. The contexts are
// valid while the list lives. Sets up fork support first, where the kernel needs it. Empty (null)
// if there is none.
IbDeviceList list_ib_devices();
// In the list; null if it is not there.
ibv_context* find_ib_device(const IbDeviceList& devices, const std::string& verbs_name);

// Makes a queue pair and registers a page, as a connection would. Never throws: `info` says why the
// device is not usable.
IbProbe probe_ib_context(ibv_context* context);

// The device's numeric addresses; rdma_cm reaches it by these. Empty if there is none or rdma_cm
// does not work.
std::vector<IbAddress> ib_addresses(ibv_context* context);

std::string gid_text(const ibv_gid& gid);
std::string link_layer_text(std::uint8_t link_layer);
constexpr unsigned mtu_bytes(ibv_mtu mtu) { return 128U << static_cast<unsigned>(mtu); }

}  // namespace leat::detail
