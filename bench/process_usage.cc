#include "process_usage.h"

#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <vector>

namespace leat::bench {
namespace {

constexpr std::uint64_t kPeakGrain = std::uint64_t{1} << 20;

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

// The number after `name` in a line "Name:   123 kB", in bytes; false: it is another line.
bool kilobytes(const std::string& line, const char* name, std::uint64_t& bytes) {
  if (line.rfind(name, 0) != 0) return false;
  bytes = std::stoull(line.substr(std::string(name).size())) << 10;
  return true;
}

}  // namespace

ResidentMemory resident_memory() {
  ResidentMemory memory;
  std::ifstream file("/proc/self/smaps");
  bool shared = false;
  std::string line;
  while (std::getline(file, line)) {
    std::uint64_t bytes = 0;
    if (kilobytes(line, "Rss:", bytes)) {
      if (shared) memory.shared_bytes += bytes;
    } else if (kilobytes(line, "Anonymous:", bytes)) {
      memory.own_bytes += bytes;
    } else if (line.find('-') < line.find(' ')) {  // the head of a mapping
      shared = line.find("/memfd:") != std::string::npos;
    }
  }
  return memory;
}

std::uint64_t released_since_peak() {
  std::uint64_t peak = 0;
  std::uint64_t now = 0;
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (!kilobytes(line, "VmHWM:", peak)) kilobytes(line, "VmRSS:", now);
  }
  return peak >= now + kPeakGrain ? peak - now : 0;
}

void reset_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5";
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  // One of them is the iterator's.
  return static_cast<std::size_t>(std::distance(begin(open), end(open))) - 1;
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

namespace {

// All threads of that process.
void add_process(const std::string& process, FamilyUsage& usage) {
  std::error_code gone;  // a thread, or all of them
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/" + process + "/task", gone)) {
    std::ifstream status(thread.path() / "status");
    for (std::string line; std::getline(status, line);)
      if (line.find("ctxt_switches:") != std::string::npos)
        usage.switches += std::stoull(line.substr(line.find(':') + 1));
    std::uint64_t ran_ns = 0;
    std::ifstream(thread.path() / "schedstat") >> ran_ns;
    usage.cpu_seconds += static_cast<double>(ran_ns) * 1e-9;
  }
}

}  // namespace

FamilyUsage family_usage() {
  FamilyUsage usage;
  add_process("self", usage);
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream children(thread.path() / "children");
    for (std::string child; children >> child;) add_process(child, usage);
  }
  return usage;
}

std::uint64_t packets_sent(const std::string& device) {
  constexpr const char* kPrefix = "ib:";
  if (device.rfind(kPrefix, 0) != 0) return 0;
  std::ifstream file("/sys/class/infiniband/" + device.substr(3) +
                     "/ports/1/hw_counters/sent_pkts");
  std::uint64_t count = 0;
  file >> count;
  return file ? count : 0;
}

std::uint64_t tcp_segments_resent() {
  // Two lines "Tcp:", names and values.
  std::ifstream file("/proc/net/snmp");
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("Tcp:", 0) != 0) continue;
    std::istringstream words(line);
    std::string word;
    if (names.empty()) {
      while (words >> word) names.push_back(word);
      continue;
    }
    for (std::size_t i = 0; words >> word; ++i)
      if (i < names.size() && names[i] == "RetransSegs") return std::stoull(word);
  }
  return 0;
}

}  // namespace leat::bench
