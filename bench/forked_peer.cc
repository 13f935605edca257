#include "forked_peer.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <system_error>

namespace leat::bench {
namespace {

int run_child(const std::function<void(const ForkedPeer::Tell&)>& body, int pipe_end) {
  try {
    body([pipe_end](const std::string& text) {
      const std::string line = text + "\n";
      if (write(pipe_end, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
        throw std::runtime_error("cannot tell the other side our address");
      }
    });
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "leat-bench (peer): %s\n", error.what());
    return 1;
  }
}

}  // namespace

ForkedPeer::ForkedPeer(const std::function<void(const Tell&)>& body) {
  int ends[2];
  if (pipe(ends) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid_ == 0) {
    close(ends[0]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    _exit(run_child(body, ends[1]));
  }
  close(ends[1]);
  pipe_ = ends[0];
}

ForkedPeer::~ForkedPeer() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(pipe_);
}

std::string ForkedPeer::listen() const {
  std::string line;
  for (char letter = 0; read(pipe_, &letter, 1) == 1 && letter != '\n';) line += letter;
  if (line.empty()) throw std::runtime_error("the peer process ended before it was ready");
  return line;
}

std::optional<std::string> ForkedPeer::try_listen() const {
  pollfd told{pipe_, POLLIN, 0};
  if (poll(&told, 1, 0) <= 0) return std::nullopt;
  return listen();
}

void ForkedPeer::wait() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw std::runtime_error("the peer process failed");
  }
}

}  // namespace leat::bench
