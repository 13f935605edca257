// Signals wait while one of these lives.
#pragma once

#include <signal.h>

namespace leat::detail {

// For who looks, and then sleeps with them let in at once; and around the making of threads of
// leat's own, which inherit it: the program's handlers are not to run there.
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
