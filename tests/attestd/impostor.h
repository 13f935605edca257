// A process that stands at a socket in the daemon's place.
#pragma once

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <utility>

#include "attestd/daemon.h"
#include "base/system_error.h"
#include "support/scratch.h"

namespace leat::attestd {

// Serves one client after another. Killed at the end.
class Impostor {
 public:
  // `serve` has the client until it returns. `before` runs before the process listens; false: it
  // could not do what it should.
  explicit Impostor(
      const std::function<void(const Fd& client)>& serve,
      const std::function<bool()>& before = [] { return true; }) {
    const Fd listener = socket_at(path(), bind);
    int ready[2];
    leat::detail::check(pipe(ready), "pipe");
    Fd serves(ready[0]), tells(ready[1]);
    process_ = leat::detail::check(fork(), "fork");
    if (process_ == 0) {
      const bool able = before();
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (!able || listen(listener.get(), 8) != 0 || write(tells.get(), "!", 1) != 1) _exit(1);
      for (;;) serve(Fd(accept(listener.get(), nullptr, nullptr)));
    }
    tells.reset();
    char byte = 0;
    EXPECT_EQ(read(serves.get(), &byte, 1), 1) << "the impostor does not serve";
  }
  ~Impostor() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  Impostor(const Impostor&) = delete;
  Impostor& operator=(const Impostor&) = delete;

  std::string path() const { return folder_.path() + "/socket"; }

 private:
  const leat::detail::ScratchFolder folder_;
  pid_t process_ = -1;
};

}  // namespace leat::attestd
