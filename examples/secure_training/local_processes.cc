#include "local_processes.h"

#include <leat/listener.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

namespace training {
namespace {

int exit_code_of(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return 1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

LocalProcesses::~LocalProcesses() {
  for (const pid_t child : children_) {
    kill(child, SIGKILL);
    exit_code_of(child);
  }
}

void LocalProcesses::start(const std::function<int()>& body) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(getppid() == parent ? body() : 1);
  }
  children_.push_back(child);
}

bool LocalProcesses::wait() {
  bool succeeded = true;
  for (const pid_t child : children_) succeeded = exit_code_of(child) == 0 && succeeded;
  children_.clear();
  return succeeded;
}

// All at once, so that they differ.
std::vector<std::string> free_local_addresses(std::size_t count) {
  std::vector<leat::Listener> listeners;
  std::vector<std::string> addresses;
  for (std::size_t i = 0; i < count; ++i)
    addresses.push_back(listeners.emplace_back("127.0.0.1:0").address());
  return addresses;
}

}  // namespace training
