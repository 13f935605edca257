// What every function of leat/c.h does around its work: nothing is thrown out of it, -errno becomes
// -1 and errno, and it is no cancellation point but where it sleeps.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <cerrno>
#include <exception>
#include <new>
#include <string>

#include "leat/error.h"

namespace leat::detail::c {

// Remembers for leat_last_error() what this thread's call failed with; returns -1 with errno set.
// Without a text the sentence is made of the call's name and errno, and only when it is asked for.
long failed(const char* call, int error, const char* text = nullptr) noexcept;
const char* last_error() noexcept;
// The sentence for the errno that the present call is about to return.
void explain(const std::string& text) noexcept;

// While the inner parts work, which a cancellation would leave half done. The sleep lets it in.
class NotCancelled {
 public:
  NotCancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NotCancelled() { pthread_setcancelstate(before_, nullptr); }
  NotCancelled(const NotCancelled&) = delete;
  NotCancelled& operator=(const NotCancelled&) = delete;

  // What the caller had, for the time of a sleep.
  class Pause {
   public:
    explicit Pause(int state) { pthread_setcancelstate(state, nullptr); }
    ~Pause() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr); }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
  };
  static int callers_state() noexcept { return callers_state_; }

 private:
  friend class Call;
  static thread_local int callers_state_;
  int before_ = 0;
};

// Signals wait until it ends: for who looks, and then sleeps with them let in at once; and for
// threads of leat's own, which must not run the program's handlers.
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

class Call {
 public:
  Call() : callers_(NotCancelled::callers_state_) { NotCancelled::callers_state_ = inner_.before_; }
  ~Call() { NotCancelled::callers_state_ = callers_; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  NotCancelled inner_;
  const int callers_;
};

// `body` returns the result or -errno, or throws. A cancellation passes through.
template <typename Body>
long called(const char* name, Body&& body) {
  const Call call;
  try {
    const long result = body();
    return result >= 0 ? result : failed(name, static_cast<int>(-result));
  } catch (const Error& error) {
    return failed(name, error.system_errno(), error.what());
  } catch (const std::bad_alloc&) {
    return failed(name, ENOMEM);
  } catch (const std::exception& error) {
    return failed(name, EIO, error.what());
  }
}

}  // namespace leat::detail::c
