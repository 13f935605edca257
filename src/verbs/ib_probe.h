// What a verbs device can do here, found by trying it.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "leat/error.h"
#include "verbs/device.h"
#include "verbs/ib_address.h"
#include "verbs/ib_handle.h"

namespace leat::detail {

struct IbProbe {
  DeviceInfo info;
  Limits limits;
  std::uint8_t port = 1;  // the first that is active
  ibv_mtu mtu = IBV_MTU_1024;
  std::uint8_t reads = 0;  // outstanding on one queue pair, each way
};

// Makes a queue pair and registers a page, as a connection would. Never throws: `info` says why the
// device is not usable. `context` keeps it open, if it could be opened.
IbProbe probe_ib(const std::string& verbs_name, IbContext& context);

// How many devices this machine has, usable or not; and the error if there is none.
std::size_t count_ib_devices();
Error no_ib_device();

// The device's addresses; rdma_cm reaches it by these. Empty if there is none or rdma_cm does not
// work.
std::vector<IbAddress> ib_addresses(const std::string& verbs_name);

std::string gid_text(const ibv_gid& gid);
std::string link_layer_text(std::uint8_t link_layer);
constexpr unsigned mtu_bytes(ibv_mtu mtu) { return 128U << static_cast<unsigned>(mtu); }

}  // namespace leat::detail
