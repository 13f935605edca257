#include "tools/verbs_ports.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace leat::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDevices = "/sys/class/infiniband";
constexpr std::string_view kEmptyGid = "0000:0000:0000:0000:0000:0000:0000:0000";

// The first line; empty if the file is missing or has nothing, as unused GID entries.
std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<Gid> gids_of(const fs::path& port) {
  std::vector<Gid> gids;
  for (const std::string& index : names_in(port / "gids")) {
    const std::string text = line_of(port / "gids" / index);
    if (text.empty() || text == kEmptyGid) continue;
    gids.push_back({std::stoi(index), text, line_of(port / "gid_attrs" / "types" / index),
                    line_of(port / "gid_attrs" / "ndevs" / index)});
  }
  std::sort(gids.begin(), gids.end(), [](const Gid& a, const Gid& b) { return a.index < b.index; });
  return gids;
}

}  // namespace

std::vector<VerbsPort> verbs_ports() {
  std::vector<VerbsPort> ports;
  for (const std::string& device : names_in(kDevices)) {
    const fs::path folder = fs::path(kDevices) / device / "ports";
    for (const std::string& number : names_in(folder)) {
      const fs::path port = folder / number;
      // "4: ACTIVE"
      const std::string state = line_of(port / "state");
      const std::size_t colon = state.find(": ");
      ports.push_back({device, std::stoi(number),
                       colon == std::string::npos ? state : state.substr(colon + 2),
                       line_of(port / "link_layer"), line_of(port / "rate"), gids_of(port)});
    }
  }
  return ports;
}

}  // namespace leat::tools
