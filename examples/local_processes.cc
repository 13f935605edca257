#include "local_processes.h"

#include <fcntl.h>
#include <leat/error.h>
#include <leat/listener.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <system_error>
#include <utility>

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

namespace {
using Address = std::array<char, 64>;  // ends with zeros; a pipe takes and gives it whole
}  // namespace

AddressPipe::AddressPipe() {
  if (pipe2(ends_, O_CLOEXEC) != 0)
    throw std::system_error(errno, std::generic_category(), "pipe2");
}

AddressPipe::~AddressPipe() {
  for (const int end : ends_)
    if (end >= 0) close(end);
}

void AddressPipe::tell(const std::string& address, std::size_t processes) {
  Address text{};
  if (address.size() >= text.size()) throw std::length_error("an address of " + address);
  address.copy(text.data(), address.size());
  for (std::size_t i = 0; i < processes; ++i)
    if (write(ends_[1], text.data(), text.size()) < 0)
      throw std::system_error(errno, std::generic_category(), "write");
}

std::string AddressPipe::wait() {
  close(std::exchange(ends_[1], -1));  // or it would wait for itself
  Address text{};
  ssize_t bytes = 0;
  do {
    bytes = read(ends_[0], text.data(), text.size());
  } while (bytes < 0 && errno == EINTR);
  if (bytes < 0) throw std::system_error(errno, std::generic_category(), "read");
  if (bytes == 0) throw std::runtime_error("the process that was to listen has ended");
  return text.data();
}

// Below the ports that Linux gives to connections and to listeners at port 0 (from 32768 on): one
// of those may be another's before its party listens there. All at once, so that they differ.
std::vector<std::string> free_local_addresses(std::size_t count) {
  std::random_device random;
  std::uniform_int_distribution<unsigned> port(10'000, 32'767);
  std::vector<leat::Listener> listeners;
  std::vector<std::string> addresses;
  for (unsigned tries = 0; addresses.size() < count; ++tries) {
    try {
      addresses.push_back(
          listeners.emplace_back("127.0.0.1:" + std::to_string(port(random))).address());
    } catch (const leat::Error& error) {
      if (error.code() != leat::ErrorCode::kAddress || tries > 1000) throw;  // taken: another one
    }
  }
  return addresses;
}
