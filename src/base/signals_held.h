// Holds back signals while an object of this class lives.
#pragma once

#include <signal.h>

namespace leat::detail {

// For a thread that looks for news and then sleeps with signals let in atomically; and while leat
// starts a thread of its own, which inherits the mask, because the program's handlers must not run
// there.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
};

}  // namespace leat::detail
