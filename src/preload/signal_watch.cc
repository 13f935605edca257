#include "preload/signal_watch.h"

#include <pthread.h>

#include <initializer_list>

#include "posix/signals.h"

namespace leat::preload {
namespace {

// Without a handler.
bool does_nothing(int signal) {
  return signal == SIGCHLD || signal == SIGURG || signal == SIGWINCH || signal == SIGCONT;
}

}  // namespace

SignalWatch::SignalWatch() noexcept {
  sigset_t all;
  sigfillset(&all);
  // Those of a fault come at once or kill.
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
    sigdelset(&all, fault);
  pthread_sigmask(SIG_BLOCK, &all, &before_);
}

SignalWatch::~SignalWatch() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

SignalWatch::Came SignalWatch::look() const noexcept {
  sigset_t pending;
  sigpending(&pending);
  Came came = Came::kNothing;
  for (int signal = 1; signal < NSIG; ++signal) {
    if (sigismember(&pending, signal) != 1 || sigismember(&before_, signal) == 1) continue;
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    // The kernel lets them pass unless they are held back.
    if (action.sa_handler == SIG_DFL && does_nothing(signal)) continue;
    if (posix::interrupts_calls(action)) return Came::kInterrupts;
    came = Came::kRestarts;
  }
  return came;
}

}  // namespace leat::preload
