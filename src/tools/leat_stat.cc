// leat-stat: what the carried connections of a process do (leat-run).
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <climits>
#include <cstring>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "leat/version.h"
#include "preload/shared_memory.h"

namespace leat::tools {
namespace {

using detail::Fd;
using nlohmann::ordered_json;
using preload::SharedMemory;
using preload::Side;

constexpr int kCannotLook = 1;
constexpr int kUsage = 2;
constexpr const char* kMemoryName = "/memfd:leat-connection";

constexpr const char* kFooter = R"(Examples:
  leat-stat $(pidof redis-server)
  leat-stat --json 4711 | jq '.[].sent_bytes'

Connections that stay with TCP are not listed: LEAT_LOG_LEVEL=info says why each one does.
Exit code: 0; 1 if the process cannot be looked at; 2 for wrong arguments. See leat-stat(1).)";

ordered_json describe(const SharedMemory& memory, unsigned side) {
  const Side& own = memory.sides[side];
  const preload::Address& local = side == 0 ? memory.connector : memory.acceptor;
  const preload::Address& peer = side == 0 ? memory.acceptor : memory.connector;
  // Counters of running threads, each by itself: no order between them.
  const auto value = [](const auto& counter) { return counter.load(std::memory_order_relaxed); };
  return {{"local", local.text()},
          {"peer", peer.text()},
          {"side", side == 0 ? "connected" : "accepted"},
          {"device", "shm"},
          {"transport", "bytes"},
          {"sent_bytes", value(own.sent_bytes)},
          {"received_bytes", value(own.received_bytes)},
          {"sends", value(own.sends)},
          {"receives", value(own.receives)},
          {"stalls", value(own.stalls)},
          {"sleeps", value(own.sleeps)},
          {"rings", value(own.rings)}};
}

// Which end of the connection the process is: it may be both.
std::vector<unsigned> sides_of(const SharedMemory& memory, pid_t pid) {
  std::vector<unsigned> sides;
  for (unsigned side = 0; side < 2; ++side)
    if (memory.sides[side].pid.load(std::memory_order_relaxed) == static_cast<std::uint32_t>(pid))
      sides.push_back(side);
  return sides;
}

void add_connection(const std::string& path, pid_t pid, ordered_json& list) {
  const Fd memfd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!memfd || fstat(memfd.get(), &status) != 0 ||
      status.st_size != static_cast<off_t>(preload::kMemoryBytes))
    return;
  void* memory = mmap(nullptr, preload::kHeaderBytes, PROT_READ, MAP_SHARED, memfd.get(), 0);
  if (memory == MAP_FAILED) return;
  const auto& header = *static_cast<const SharedMemory*>(memory);
  if (header.magic == preload::kMemoryMagic && header.version == preload::kMemoryVersion) {
    for (const unsigned side : sides_of(header, pid)) list.push_back(describe(header, side));
  }
  munmap(memory, preload::kHeaderBytes);
}

std::optional<ordered_json> connections_of(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  DIR* entries = opendir(folder.c_str());
  if (entries == nullptr) return std::nullopt;
  ordered_json list = ordered_json::array();
  std::set<std::string> seen;  // a program connected to itself has each memory twice
  while (const dirent* entry = readdir(entries)) {  // NOLINT(concurrency-mt-unsafe): one thread
    const std::string path = folder + "/" + entry->d_name;
    char target[256] = {};
    struct stat status {};
    if (readlink(path.c_str(), target, sizeof(target) - 1) < 0 ||
        std::strncmp(target, kMemoryName, std::strlen(kMemoryName)) != 0 ||
        stat(path.c_str(), &status) != 0 || !seen.insert(std::to_string(status.st_ino)).second)
      continue;
    add_connection(path, pid, list);
  }
  closedir(entries);
  return list;
}

void print_table(const ordered_json& list) {
  std::printf("%-22s %-22s %-9s %-6s %-9s %14s %14s %10s %10s %8s %8s %8s\n", "local", "peer",
              "side", "device", "transport", "sent", "received", "sends", "receives", "stalls",
              "sleeps", "rings");
  for (const ordered_json& one : list) {
    const auto text = [&](const char* name) { return one[name].get<std::string>(); };
    const auto number = [&](const char* name) { return one[name].get<unsigned long long>(); };
    std::printf("%-22s %-22s %-9s %-6s %-9s %14llu %14llu %10llu %10llu %8llu %8llu %8llu\n",
                text("local").c_str(), text("peer").c_str(), text("side").c_str(),
                text("device").c_str(), text("transport").c_str(), number("sent_bytes"),
                number("received_bytes"), number("sends"), number("receives"), number("stalls"),
                number("sleeps"), number("rings"));
  }
}

int run(int argc, char** argv) {
  CLI::App app{"Shows the connections of a process that leat-run carries.", "leat-stat"};
  app.footer(kFooter);
  app.set_version_flag("-v,--version", std::string("leat ") + LEAT_VERSION_STRING);
  pid_t pid = 0;
  bool json = false;
  app.add_option("PID", pid, "The process")
      ->required()
      ->check(CLI::Range(1, INT_MAX).description(""));
  app.add_flag("--json", json, "Print a JSON array");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  const std::optional<ordered_json> list = connections_of(pid);
  if (!list) {
    std::cerr << "leat-stat: process " << pid
              << " cannot be inspected: it does not exist, or belongs to another user\n";
    return kCannotLook;
  }
  if (json) {
    std::cout << list->dump(2) << "\n";
  } else {
    print_table(*list);
  }
  return 0;
}

}  // namespace
}  // namespace leat::tools

int main(int argc, char** argv) {
  try {
    return leat::tools::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "leat-stat: " << error.what() << "\n";
    return leat::tools::kCannotLook;
  }
}
