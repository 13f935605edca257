#include "handshake/device_list.h"

#include <algorithm>

#include "base/quote.h"
#include "base/setting_values.h"
#include "leat/error.h"

namespace leat::detail {
namespace {

constexpr std::size_t kMaxEntries = 64;

[[noreturn]] void fail(std::string_view text, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, "device " + quoted(text) + ": " + why,
              "Allowed: auto, or a list of " + device_spellings() +
                  " with commas; ^ in front excludes the list, = compares whole names.");
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
  Entry result{find_device_row(entry), {}, {}};
  if (result.kind != nullptr) {
    const std::size_t kind_bytes = std::string_view(result.kind->kind).size();
    if (entry.size() == kind_bytes) return result;
    entry.remove_prefix(kind_bytes + 1);
  }
  split_port(entry, result.name, result.port);
  if (!is_name(result.name)) fail(text, quoted(entry) + " is not a device name");
  if (entry.find(':') != std::string_view::npos && !parse_number(result.port)) {
    fail(text, "the port of " + quoted(entry) + " is not a number");
  }
  return result;
}

bool DeviceList::is_of(const Entry& entry, const DeviceRow& kind) {
  return entry.kind == nullptr ? kind.named : entry.kind == &kind;
}

// `device`: "shm", "ib:mlx5_0", "ib:mlx5_0:1".
bool DeviceList::matches(const Entry& entry, std::string_view device) const {
  const DeviceRow* kind = find_device_row(device);
  if (kind == nullptr || !is_of(entry, *kind)) return false;
  device.remove_prefix(std::min(std::string_view(kind->kind).size() + 1, device.size()));
  std::string name;
  std::string port;
  split_port(device, name, port);
  const bool same = exact_ ? name == entry.name : name.starts_with(entry.name);
  const bool same_port = entry.port.empty() || port.empty() || entry.port == port;
  return (entry.name.empty() || same) && same_port;
}

bool DeviceList::shares_memory() const {
  return std::ranges::all_of(
      device_rows(), [&](const DeviceRow& row) { return row.shares_memory || !allows(row); });
}

bool DeviceList::names_devices() const {
  return std::ranges::any_of(entries_, [](const Entry& entry) { return !entry.name.empty(); });
}

bool DeviceList::names_ports() const {
  return std::ranges::any_of(entries_, [](const Entry& entry) { return !entry.port.empty(); });
}

std::string DeviceList::missing(const std::vector<std::string>& present) const {
  std::string names;
  for (const Entry& entry : entries_) {
    if (entry.name.empty()) continue;
    const auto is_it = [&](const std::string& name) { return matches(entry, name); };
    if (std::ranges::any_of(present, is_it)) continue;
    if (!names.empty()) names += ", ";
    names += entry.name;
  }
  return names;
}

bool DeviceList::leaves_any(const std::vector<std::string>& present) const {
  const auto nameless = [&](const DeviceRow& row) { return !row.named && allows(row); };
  return std::ranges::any_of(device_rows(), nameless) ||
         std::ranges::any_of(present, [&](const std::string& name) { return allows(name); });
}

bool DeviceList::allows(const DeviceRow& kind) const {
  if (any_) return true;
  const bool listed = std::ranges::any_of(entries_, [&](const Entry& entry) {
    // An excluded device leaves the others of its kind; an excluded kind leaves none.
    return is_of(entry, kind) && (!excluded_ || entry.name.empty());
  });
  return listed != excluded_;
}

bool DeviceList::allows(std::string_view device) const {
  if (any_) return true;
  if (find_device_row(device) == nullptr) return false;
  const bool listed =
      std::ranges::any_of(entries_, [&](const Entry& entry) { return matches(entry, device); });
  return listed != excluded_;
}

}  // namespace leat::detail
