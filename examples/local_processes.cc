#include "local_processes.h"

#include <leat/listener.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <system_error>

LocalProcesses::~LocalProcesses() {
  for (const pid_t child : children_) kill(child, SIGKILL);
  for (const pid_t child : children_)
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
}

void LocalProcesses::start(const std::function<int()>& body) {
  const pid_t parent = getpid();
  std::fflush(nullptr);  // or the child writes it again
  const pid_t child = fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // Not _exit(): closed channels may still have something to send.
    std::exit(getppid() == parent ? body() : 1);
  }
  children_.push_back(child);
}

bool LocalProcesses::wait() {
  while (!children_.empty()) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, 0);
    if (ended < 0 && errno == EINTR) continue;
    if (ended < 0) throw std::system_error(errno, std::generic_category(), "waitpid");
    std::erase(children_, ended);
    if (WIFSIGNALED(status))
      std::fprintf(stderr, "a process was killed by signal %d\n", WTERMSIG(status));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return false;
  }
  return true;
}

// All at once, so that they differ.
std::vector<std::string> free_local_addresses(std::size_t count) {
  std::vector<leat::Listener> listeners;
  std::vector<std::string> addresses;
  for (std::size_t i = 0; i < count; ++i)
    addresses.push_back(listeners.emplace_back("127.0.0.1:0").address());
  return addresses;
}
