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

// The address of a listener, for processes that were forked before it was there: a listener has
// threads, so it comes after the last fork.
class AddressPipe {
 public:
  AddressPipe();
  AddressPipe(const AddressPipe&) = delete;
  AddressPipe& operator=(const AddressPipe&) = delete;
  ~AddressPipe();

  void tell(const std::string& address, std::size_t processes);
  // Once in each of those processes. Throws if the listener's process ends without a word.
  std::string wait();

 private:
  int ends_[2];
};

// Addresses of this host with ports that are free now.
std::vector<std::string> free_local_addresses(std::size_t count);
