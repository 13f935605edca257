// What a signal means for a call that sleeps.
#pragma once

#include <csignal>

namespace leat::posix {

// Whether the call ends with EINTR: the program has a handler for the signal, and installed it
// without SA_RESTART. Else the call goes on.
inline bool interrupts_calls(const struct sigaction& action) {
  const bool handled = (action.sa_flags & SA_SIGINFO) != 0 ||
                       (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
  return handled && (action.sa_flags & SA_RESTART) == 0;
}

}  // namespace leat::posix
