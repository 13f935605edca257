// The processes of an example that runs on this machine alone.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

// Forks, so make it before any thread exists. Children end with their parent; the destructor kills
// those that have not ended.
class LocalProcesses {
 public:
  LocalProcesses() = default;
  LocalProcesses(const LocalProcesses&) = delete;
  LocalProcesses& operator=(const LocalProcesses&) = delete;
  ~LocalProcesses();

  // Runs `body`, whose result is the exit code, in a child.
  void start(const std::function<int()>& body);
  // Waits until all have succeeded, or one has failed; then false.
  bool wait();

 private:
  std::vector<pid_t> children_;
};

// Addresses of this host with ports that are free now.
std::vector<std::string> free_local_addresses(std::size_t count);
