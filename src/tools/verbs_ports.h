// The ports of RDMA devices as the kernel shows them in /sys, even to users that may not open them.
#pragma once

#include <string>
#include <vector>

namespace leat::tools {

struct Gid {
  int index = 0;
  std::string text;  // "fe80:0000:..."
  std::string type;  // "RoCE v2"; "IB/RoCE v1"
  std::string network_device;
};

struct VerbsPort {
  std::string device;  // "mlx5_0"
  int port = 0;
  std::string state;       // "ACTIVE"
  std::string link_layer;  // "Ethernet", "InfiniBand"
  std::string rate;        // "100 Gb/sec (4X EDR)"
  std::vector<Gid> gids;   // without empty entries
};

// All ports of all devices; empty if the machine has none.
std::vector<VerbsPort> verbs_ports();

}  // namespace leat::tools
