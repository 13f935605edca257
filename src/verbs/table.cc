#include "verbs/table.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "leat/error.h"
#include "verbs/ib/row.h"
#include "verbs/shm/row.h"

namespace leat::detail {
namespace {

constexpr std::array kDevices = std::to_array<DeviceRow>({
    {.kind = "shm",
     .spelling = "shm",
     .shares_memory = true,
     .open = open_shm_device,
     .probe_all = probe_shm_devices,
     .probe = probe_shm_device,
     .obstacle = shm_obstacle,
     .is_likely = shm_is_likely},
    {.kind = "ib",
     .spelling = "ib, ib:NAME, ib:NAME:PORT",
     .named = true,
     .open = open_ib_device,
     .probe_all = probe_ib_devices,
     .probe = probe_ib_device,
     .names = ib_device_names,
     .find = find_ib_device},
    {.kind = kNoDevice, .spelling = kNoDevice},
});

DeviceDecorator device_decorator = nullptr;

Error unknown_device(const std::string& name) {
  return {ErrorCode::kUnavailable, "no device is named '" + name + "'",
          "There are: " + device_spellings() + ". leat-info -d shows those of this machine."};
}

}  // namespace

const char* to_string(CompletionStatus status) {
  switch (status) {
    case CompletionStatus::kSuccess:
      return "success";
    case CompletionStatus::kRemoteAccess:
      return "remote access error";
    case CompletionStatus::kLocalAccess:
      return "local protection error";
    case CompletionStatus::kLength:
      return "length error";
    case CompletionStatus::kPeerGone:
      return "peer gone (retries exhausted or disconnected)";
    case CompletionStatus::kFlushed:
      return "flushed (the queue pair was in error)";
    case CompletionStatus::kOther:
      return "other error";
  }
  return "unknown";
}

std::span<const DeviceRow> device_rows() { return kDevices; }

const DeviceRow* find_device_row(std::string_view device) {
  const auto* row = std::ranges::find_if(kDevices, [&](const DeviceRow& one) {
    const std::string_view kind(one.kind);
    return device == kind || (one.named && device.starts_with(kind) && device[kind.size()] == ':');
  });
  return row == kDevices.end() ? nullptr : row;
}

std::string device_spellings() {
  std::string all;
  for (const DeviceRow& row : kDevices)
    all += (all.empty() ? "" : ", ") + std::string(row.spelling);
  return all;
}

std::unique_ptr<Device> open_device(const std::string& name, const std::string& peer_host) {
  const DeviceRow* row = find_device_row(name);
  if (row == nullptr || !row->rdma()) throw unknown_device(name);
  auto device = row->open(name, peer_host);
  return device_decorator == nullptr ? std::move(device) : device_decorator(std::move(device));
}

DeviceDecorator decorate_devices(DeviceDecorator decorator) {
  return std::exchange(device_decorator, decorator);
}

std::vector<DeviceInfo> probe_devices() {
  std::vector<DeviceInfo> devices;
  for (const DeviceRow& row : kDevices)
    if (row.probe_all != nullptr) std::ranges::move(row.probe_all(), std::back_inserter(devices));
  return devices;
}

DeviceInfo probe_device(const std::string& name) {
  const DeviceRow* row = find_device_row(name);
  if (row != nullptr && row->probe != nullptr) return row->probe(name);
  DeviceInfo info;
  info.name = name;
  info.why_not = unknown_device(name).what();
  return info;
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const DeviceRow& row : kDevices)
    if (row.names != nullptr) std::ranges::move(row.names(), std::back_inserter(names));
  return names;
}

}  // namespace leat::detail
