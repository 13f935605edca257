// Signals during a blocking call of the program that works without the kernel.
#pragma once

#include <csignal>

namespace leat::preload {

// Keeps signals back, so that it can be told whether one would have interrupted the call. Their
// handlers run when it is destroyed. For one thread.
class SignalWatch {
 public:
  SignalWatch() noexcept;
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  enum class Came {
    kNothing,
    kRestarts,    // the call goes on afterwards: its handler has SA_RESTART, or there is none
    kInterrupts,  // EINTR
  };
  Came look() const noexcept;

 private:
  sigset_t before_{};
};

}  // namespace leat::preload
