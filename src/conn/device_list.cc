#include "conn/device_list.h"

#include <algorithm>

#include "base/quote.h"
#include "base/setting_values.h"
#include "leat/error.h"

namespace leat::detail {
namespace {

constexpr std::string_view kIbPrefix = "ib:";
constexpr std::size_t kMaxEntries = 64;

[[noreturn]] void fail(std::string_view text, const std::string& why) {
  throw Error(
      ErrorCode::kInvalidArgument, "device " + quoted(text) + ": " + why,
      "Allowed: auto, or a list of shm, ib, ib:NAME, ib:NAME:PORT, tcp with commas; ^ in front "
      "excludes the list, = compares whole names.");
}

// "mlx5_0:1" to name and port.
void split_port(std::string_view device, std::string& name, std::string& port) {
  const std::size_t colon = std::min(device.find(':'), device.size());
  name = std::string(device.substr(0, colon));
  port = std::string(device.substr(std::min(colon + 1, device.size())));
}

bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '-' || c == '.';
  });
}

}  // namespace

const char* to_string(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kShm:
      return "shm";
    case DeviceKind::kIb:
      return "ib";
    case DeviceKind::kTcp:
      return "tcp";
  }
  return "unknown";
}

DeviceList::DeviceList(std::string_view text) : text_(text) {
  if (text == "auto") {
    any_ = true;
    return;
  }
  std::string_view rest = text;
  if (rest.starts_with('^')) {
    excluded_ = true;
    rest.remove_prefix(1);
  }
  if (rest.starts_with('=')) {
    exact_ = true;
    rest.remove_prefix(1);
  }
  for (;;) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    entries_.push_back(parse_entry(rest.substr(0, comma), text));
    if (entries_.size() > kMaxEntries) fail(text, "there are more than 64 entries");
    if (comma == rest.size()) return;
    rest.remove_prefix(comma + 1);
  }
}

DeviceList::Entry DeviceList::parse_entry(std::string_view entry, std::string_view text) {
  if (entry.empty()) fail(text, "there is an empty entry");
  if (entry == "auto") fail(text, "auto must stand alone");
  if (entry == "shm") return {DeviceKind::kShm, {}, {}};
  if (entry == "tcp") return {DeviceKind::kTcp, {}, {}};
  if (entry == "ib") return {DeviceKind::kIb, {}, {}};
  if (entry.starts_with(kIbPrefix)) entry.remove_prefix(kIbPrefix.size());
  Entry result{DeviceKind::kIb, {}, {}};
  split_port(entry, result.name, result.port);
  if (!is_name(result.name)) fail(text, quoted(entry) + " is no device name");
  if (entry.find(':') != std::string_view::npos && !parse_number(result.port)) {
    fail(text, "the port of " + quoted(entry) + " is no number");
  }
  return result;
}

bool DeviceList::matches(const Entry& entry, std::string_view name, std::string_view port) const {
  const bool same = exact_ ? name == entry.name : name.starts_with(entry.name);
  const bool same_port = entry.port.empty() || port.empty() || entry.port == port;
  return (entry.name.empty() || same) && same_port;
}

bool DeviceList::allows(DeviceKind kind) const {
  if (any_) return true;
  const bool listed = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    // An excluded verbs device leaves the others; an excluded kind leaves none.
    return entry.kind == kind && (!excluded_ || entry.name.empty());
  });
  return listed != excluded_;
}

bool DeviceList::allows(std::string_view device) const {
  if (any_) return true;
  if (device == "shm") return allows(DeviceKind::kShm);
  if (device == "tcp") return allows(DeviceKind::kTcp);
  if (device.starts_with(kIbPrefix)) device.remove_prefix(kIbPrefix.size());
  std::string name;
  std::string port;
  split_port(device, name, port);
  const bool listed = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.kind == DeviceKind::kIb && matches(entry, name, port);
  });
  return listed != excluded_;
}

}  // namespace leat::detail
