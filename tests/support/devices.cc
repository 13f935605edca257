#include "support/devices.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <stdexcept>

#include "verbs/table.h"

namespace leat::detail {
namespace {

constexpr std::string_view kIbPrefix = "ib:";

}  // namespace

std::vector<std::string> test_devices() {
  std::vector<std::string> devices;
  for (const DeviceRow& row : device_rows()) {
    if (!row.rdma()) continue;
    if (!row.named) {
      devices.emplace_back(row.kind);
      continue;
    }
    std::string variable = std::string("LEAT_TEST_") + row.kind;
    std::ranges::transform(variable, variable.begin(),
                           [](unsigned char c) { return std::toupper(c); });
    const char* name = std::getenv(variable.c_str());
    if (name != nullptr && *name != '\0') devices.push_back(std::string(row.kind) + ':' + name);
  }
  return devices;
}

std::string device_label(const std::string& device) {
  std::string label = device;
  std::replace_if(
      label.begin(), label.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return label;
}

std::string network_device(const std::string& device) {
  const std::string path =
      "/sys/class/infiniband/" + device.substr(kIbPrefix.size()) + "/ports/1/gid_attrs/ndevs/0";
  std::string name;
  if (!std::getline(std::ifstream(path), name)) throw std::runtime_error("cannot read " + path);
  return name;
}

std::string device_address(const std::string& device) {
  if (!device.starts_with(kIbPrefix)) return {};
  const std::string network = network_device(device);
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw std::runtime_error("getifaddrs failed");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if (network != entry->ifa_name) continue;
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    char text[INET_ADDRSTRLEN] = {};
    ::inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text));
    return text;
  }
  throw std::runtime_error("network device " + network + " of " + device + " has no IPv4 address");
}

std::string device_test_name(
    const testing::TestParamInfo<std::tuple<std::string, PeerMode>>& parameters) {
  return device_label(std::get<0>(parameters.param)) + "_" +
         to_string(std::get<1>(parameters.param));
}

}  // namespace leat::detail
