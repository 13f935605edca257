// For the library's own work inside a call of the program.
#pragma once

#include <pthread.h>

#include <cerrno>

namespace leat::preload {

// While it lives no call is a cancellation point.
class Uncancelled {
 public:
  Uncancelled() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state_); }
  ~Uncancelled() { pthread_setcancelstate(state_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  int state_ = PTHREAD_CANCEL_ENABLE;
};

// And afterwards errno is what it was before.
class Undisturbed : Uncancelled {
 public:
  Undisturbed() noexcept : errno_(errno) {}
  ~Undisturbed() { errno = errno_; }
  Undisturbed(const Undisturbed&) = delete;
  Undisturbed& operator=(const Undisturbed&) = delete;

 private:
  int errno_;
};

}  // namespace leat::preload
