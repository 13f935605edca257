#include "machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include "bounds/cache_line.h"

namespace leat::bench {
namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

// The hyper-threads of one core have the same text here.
std::string siblings(int core) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(core) +
                     "/topology/thread_siblings_list");
  std::string text;
  std::getline(file, text);
  return text;
}

}  // namespace

Machine this_machine() {
  utsname name{};
  uname(&name);
  return {cpu_name(), sysconf(_SC_NPROCESSORS_ONLN),
          std::string(name.sysname) + " " + name.release};
}

std::size_t usable_cores() { return allowed_cores().size(); }

std::optional<CorePair> choose_cores(const std::vector<int>& wanted) {
  if (!wanted.empty()) return CorePair{wanted.front(), wanted.back()};
  const std::vector<int> cores = allowed_cores();
  if (cores.size() < 2) return std::nullopt;
  const std::string first = siblings(cores[0]);
  for (std::size_t i = 1; i < cores.size(); ++i) {
    if (siblings(cores[i]) != first) return CorePair{cores[0], cores[i]};
  }
  return CorePair{cores[0], cores[1]};
}

std::string describe_cores(const std::optional<CorePair>& cores) {
  if (!cores) return "not pinned, as there is only one";
  std::string text = std::to_string((*cores)[0]) + ", peer on " + std::to_string((*cores)[1]);
  if ((*cores)[0] != (*cores)[1]) {
    text += "; a cache line there and back: " +
            std::to_string(std::lround(cache_line_round_trip_ns(*cores))) + " ns";
  }
  return text;
}

void pin_to_core(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (core >= 0 && core < CPU_SETSIZE) CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof set, &set) == 0) return;
  throw std::runtime_error(
      "cannot run on core " + std::to_string(core) + ": " + std::generic_category().message(errno) +
      ". Give cores that this process may use: --cpus A,B (see nproc, taskset -cp $$).");
}

}  // namespace leat::bench
