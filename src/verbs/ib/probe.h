// Finds out what a verbs device can do here, by trying it.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "leat/error.h"
#include "verbs/device.h"
#include "verbs/ib/address.h"
#include "verbs/ib/handle.h"

namespace leat::detail {

struct IbProbe {
  DeviceInfo info;
  Limits limits;
  std::uint8_t port = 1;
  ibv_mtu mtu = IBV_MTU_1024;
  std::uint8_t reads = 0;  // outstanding on one queue pair, in each direction
};

// Makes a queue pair and registers a page, as a connection does. Never throws: `info` says why the
// device cannot be used. `context` keeps the device open, if it could be opened. `port`: the port
// to probe; 0: the first active one.
IbProbe probe_ib(const std::string& verbs_name, IbContext& context, std::uint64_t port = 0);

// Throws kUnavailable, with what the device `name` lacks, unless it is InfiniBand or RoCE.
void check_ib_transport(ibv_transport_type type, const std::string& name);

// The number of verbs devices of this machine, usable or not, and the error if there are none.
std::size_t count_ib_devices();
Error no_ib_device();

// The device's addresses, by which rdma_cm reaches it. Empty if it has none or rdma_cm does not
// work.
std::vector<IbAddress> ib_addresses(const std::string& verbs_name);

std::string gid_text(const ibv_gid& gid);
std::string link_layer_text(std::uint8_t link_layer);
constexpr unsigned mtu_bytes(ibv_mtu mtu) { return 128U << static_cast<unsigned>(mtu); }

}  // namespace leat::detail
