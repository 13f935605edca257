#include "support/fork_at_rest.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/system_error.h"
#include "support/scale.h"

namespace leat::detail {
namespace {

// A thread that waits to run, or for the kernel to give it memory, does not sleep.
bool sleeps_or_ended(const std::filesystem::path& thread) {
  std::string line;
  std::getline(std::ifstream(thread / "stat"), line);
  // "1234 (name) S ...": the name may have any character.
  const std::size_t name_end = line.rfind(") ");
  return name_end == std::string::npos || line.compare(name_end + 2, 1, "S") == 0;
}

bool others_sleep() {
  const std::filesystem::path self = std::to_string(::gettid());
  return std::ranges::all_of(
      std::filesystem::directory_iterator("/proc/self/task"), [&](const auto& thread) {
        return thread.path().filename() == self || sleeps_or_ended(thread.path());
      });
}

}  // namespace

pid_t fork_at_rest() {
  for (const Deadline deadline = hang_deadline(); !others_sleep();) {
    if (passed(deadline)) throw std::runtime_error("fork: the other threads do not come to rest");
    std::this_thread::yield();  // no event tells that a thread has gone to sleep
  }
  return check(::fork(), "fork");
}

}  // namespace leat::detail
