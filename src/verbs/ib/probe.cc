#include "verbs/ib/probe.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>

#include "base/mapped_memory.h"
#include "base/system_error.h"
#include "verbs/ib/call.h"
#include "verbs/ib/cm.h"
#include "verbs/ib/row.h"

namespace leat::detail {
namespace {

// More than this costs more in queue memory and copying than the fetch it saves.
constexpr std::array<std::uint32_t, 6> kInlineBytes{512, 256, 128, 64, 32, 0};
// Enough to fill a path with reads; some devices keep state for each on both sides.
constexpr int kMostReads = 16;
constexpr std::size_t kMostRequestBytes = std::size_t{1} << 30;

std::string device_name(const ibv_context* context) { return ibv_get_device_name(context->device); }

Error unusable(const std::string& what, const std::string& advice) {
  return {ErrorCode::kUnavailable, what, advice};
}

// The port to use and its attributes. `wanted`: that one, or 0 for any.
ibv_port_attr find_active_port(ibv_context* context, unsigned port_count, std::uint64_t wanted,
                               std::uint8_t& port) {
  const std::string name = device_name(context);
  if (wanted > port_count)
    throw unusable(name + " has no such port", "It has " + std::to_string(port_count) + ".");
  const unsigned first_number = wanted == 0 ? 1 : static_cast<unsigned>(wanted);
  const unsigned last_number = wanted == 0 ? port_count : first_number;
  ibv_port_attr first{};
  for (unsigned number = first_number; number <= last_number; ++number) {
    ibv_port_attr attributes{};
    port = static_cast<std::uint8_t>(number);
    ib_status(ibv_query_port(context, port, &attributes), "ibv_query_port",
              name + ":" + std::to_string(number));
    if (attributes.state == IBV_PORT_ACTIVE) return attributes;
    if (number == first_number) first = attributes;
  }
  port = static_cast<std::uint8_t>(first_number);
  throw unusable("port " + name + ":" + std::to_string(first_number) + " is " +
                     ibv_port_state_str(first.state),
                 first.link_layer == IBV_LINK_LAYER_ETHERNET
                     ? "Check the cable and bring its network device up (rdma link, ip link)."
                     : "Check the cable and that a subnet manager runs (ibstat).");
}

// How people would rank them: RoCE v2 on an IPv4 address, RoCE v2 on a global one, the rest.
int rank(const ibv_gid_entry& entry) {
  const bool v4 = gid_text(entry.gid).starts_with("::ffff:");
  const bool link_local = entry.gid.raw[0] == 0xfe && entry.gid.raw[1] == 0x80;
  return (entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 4 : 0) + (v4 ? 2 : 0) + (link_local ? 0 : 1);
}

std::string gid_description(ibv_context* context, int table_entries, std::uint8_t port) {
  const std::string where = device_name(context) + ":" + std::to_string(port);
  std::vector<ibv_gid_entry> entries(static_cast<std::size_t>(table_entries));
  entries.resize(static_cast<std::size_t>(
      ib_count(ibv_query_gid_table(context, entries.data(), entries.size(), 0),
               "ibv_query_gid_table", where)));
  std::erase_if(entries, [port](const ibv_gid_entry& entry) { return entry.port_num != port; });
  const auto best = std::ranges::max_element(entries, {}, rank);
  if (best == entries.end()) {
    throw unusable("port " + where + " has no GID",
                   "Give its network device an address (ip address add) and bring it up.");
  }
  constexpr std::array<const char*, 3> kTypes{"IB", "RoCE v1", "RoCE v2"};
  return "GID " + gid_text(best->gid) + " (index " + std::to_string(best->gid_index) + ", " +
         (best->gid_type < kTypes.size() ? kTypes[best->gid_type] : "other") + ")";
}

// What a queue pair of this device puts inline.
std::uint32_t try_queue_pair(ibv_context* context, const std::string& where) {
  const IbDomainHandle domain(ib_pointer(ibv_alloc_pd(context), "ibv_alloc_pd", where));
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE;
  const MappedMemory page = MappedMemory::anonymous(4096);
  const IbRegionHandle region(
      ib_pointer(ibv_reg_mr(domain.get(), page.data(), page.size(), kAccess),
                 "ibv_reg_mr(" + size_text(page.size()) + ")", where));
  const IbQueueHandle queue(
      ib_pointer(ibv_create_cq(context, 16, nullptr, nullptr, 0), "ibv_create_cq", where));
  for (const std::uint32_t inline_bytes : kInlineBytes) {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = queue.get();
    wanted.cap = {16, 16, 1, 1, inline_bytes};
    wanted.qp_type = IBV_QPT_RC;
    const IbQueuePairHandle queue_pair(ibv_create_qp(domain.get(), &wanted));
    // Devices differ in whether they lower a wish or refuse it.
    if (queue_pair != nullptr) return wanted.cap.max_inline_data;
    if (errno != EINVAL && errno != ENOMEM) break;
  }
  throw ib_error("ibv_create_qp", where, errno);
}

void fill(ibv_context* context, std::uint64_t wanted_port, IbProbe& probe) {
  const std::string name = device_name(context);
  check_ib_transport(context->device->transport_type, name);
  ibv_device_attr device{};
  ib_status(ibv_query_device(context, &device), "ibv_query_device", name);
  const ibv_port_attr port =
      find_active_port(context, device.phys_port_cnt, wanted_port, probe.port);
  const std::string where = name + ":" + std::to_string(probe.port);
  probe.mtu = port.active_mtu;
  probe.info.mtu_bytes = mtu_bytes(port.active_mtu);
  probe.info.description =
      where + " " + link_layer_text(port.link_layer) + ", MTU " +
      std::to_string(probe.info.mtu_bytes) + ", " +
      gid_description(context, port.gid_tbl_len * device.phys_port_cnt, probe.port);

  const auto depth = static_cast<std::size_t>(std::min(device.max_qp_wr, device.max_cqe));
  probe.limits.max_send_requests = depth;
  probe.limits.max_receive_requests = depth;
  probe.limits.max_request_bytes = std::min<std::size_t>(port.max_msg_sz, kMostRequestBytes);
  probe.limits.pins_memory = true;
  // Where it grants less, memory of the queue pair's stands in.
  probe.limits.max_inline_bytes =
      std::max<std::size_t>(try_queue_pair(context, where), sizeof(std::uint64_t));
  probe.reads = static_cast<std::uint8_t>(
      std::min({device.max_qp_rd_atom, device.max_qp_init_rd_atom, kMostReads}));

  const CmChannel channel(where);  // throws what is wrong with rdma_cm
  const std::vector<IbAddress> addresses = ib_addresses(name);
  if (addresses.empty()) {
    throw unusable("no IP address belongs to " + where,
                   "rdma_cm connects by IP addresses: give its network device one (ip address add; "
                   "for InfiniBand that is IPoIB).");
  }
  probe.info.description += ", address";
  for (const IbAddress& address : addresses) probe.info.description += " " + address.text();
  probe.info.description += ", locked-memory limit " + memlock_limit();
}

// The devices of this machine while the list lives.
struct Listed {
  IbDeviceList list;
  std::span<ibv_device*> devices;
};

Listed list_devices() {
  int count = 0;
  Listed listed{IbDeviceList(ibv_get_device_list(&count)), {}};
  if (listed.list != nullptr) listed.devices = {listed.list.get(), static_cast<std::size_t>(count)};
  return listed;
}

ibv_device* find(const Listed& listed, const std::string& verbs_name) {
  std::string names;
  for (ibv_device* device : listed.devices) {
    if (ibv_get_device_name(device) == verbs_name) return device;
    names += std::string(names.empty() ? "" : ", ") + ibv_get_device_name(device);
  }
  if (names.empty()) throw no_ib_device();
  throw unusable("this machine has no RDMA device " + verbs_name, "There are: " + names + ".");
}

}  // namespace

void check_ib_transport(ibv_transport_type type, const std::string& name) {
  constexpr const char* kElse = " With device=auto such connections go over TCP.";
  switch (type) {
    case IBV_TRANSPORT_IB:
      return;
    case IBV_TRANSPORT_IWARP:
      throw unusable(name + " is an iWARP device",
                     std::string("leat needs InfiniBand or RoCE: iWARP has no writes with "
                                 "immediate data.") +
                         kElse);
    default:
      throw unusable(name + " is neither InfiniBand nor RoCE",
                     std::string("leat needs reliable connected queue pairs; Amazon's EFA and "
                                 "others have datagrams only.") +
                         kElse);
  }
}

IbProbe probe_ib(const std::string& verbs_name, IbContext& context, std::uint64_t port) {
  IbProbe probe;
  probe.info.name = "ib:" + verbs_name;
  try {
    const Listed listed = list_devices();
    context = open_ib_context(find(listed, verbs_name));
    fill(context.get(), port, probe);
    probe.info.usable = true;
  } catch (const Error& error) {
    probe.info.why_not = error.what();
  }
  return probe;
}

// Not from ibv_get_device_list, which without descriptors finds none and does not say why.
std::vector<std::string> ib_device_names() {
  constexpr const char* kFolder = "/sys/class/infiniband";
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder, error))
    names.push_back("ib:" + entry.path().filename().string());
  if (error && error != std::errc::no_such_file_or_directory)
    throw system_error(std::string("reading ") + kFolder, error.value());
  return names;
}

std::size_t count_ib_devices() { return list_devices().devices.size(); }

Error no_ib_device() {
  // libibverbs does not list a device whose file it does not find.
  std::string names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", none)) {
    names += " " + entry.path().filename().string();
  }
  if (!names.empty()) {
    return unusable("the files in /dev/infiniband are missing for the RDMA devices" + names,
                    "Load the kernel module ib_uverbs. In a container: --device=/dev/infiniband "
                    "--cap-add=IPC_LOCK --network=host.");
  }
  return unusable("this machine has no RDMA device",
                  "For Soft-RoCE: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev NETDEV.");
}

std::vector<IbAddress> ib_addresses(const std::string& verbs_name) {
  std::vector<IbAddress> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  try {
    CmChannel channel(verbs_name);
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      IbAddress address(entry->ifa_addr);
      if (address.is_empty() || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
      const CmId id = channel.make_id(verbs_name);
      if (rdma_bind_addr(id.get(), address.get()) == 0 && cm_device_name(*id) == verbs_name) {
        addresses.push_back(address);
      }
    }
  } catch (const Error&) {
    addresses.clear();  // the caller finds out why when it makes a channel itself
  }
  return addresses;
}

std::string gid_text(const ibv_gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  return inet_ntop(AF_INET6, gid.raw, text.data(), text.size());
}

std::string link_layer_text(std::uint8_t link_layer) {
  return link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand";
}

DeviceInfo probe_ib_device(const std::string& name) {
  IbContext context;
  return probe_ib(name.substr(name.find(':') + 1), context).info;
}

std::vector<DeviceInfo> probe_ib_devices() {
  const Listed listed = list_devices();
  if (listed.devices.empty()) return {probe_ib_device("ib:*")};
  std::vector<DeviceInfo> infos;
  for (ibv_device* device : listed.devices)
    infos.push_back(probe_ib_device(std::string("ib:") + ibv_get_device_name(device)));
  return infos;
}

}  // namespace leat::detail
