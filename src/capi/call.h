// What every function of leat/c.h does around its work: nothing is thrown out of it, -errno becomes
// -1 and errno, and the call is a cancellation point only where it sleeps.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <exception>
#include <new>
#include <string>

#include "base/fd.h"
#include "base/signals_held.h"
#include "leat/error.h"

namespace leat::detail::c {

// Remembers for leat_last_error() what this thread's call failed with; returns -1 with errno set.
// Without a text the sentence is made of the call's name and errno, and only when it is asked for.
long failed(const char* call, int error, const char* text = nullptr) noexcept;
const char* last_error() noexcept;
// The sentence for the errno that the present call is about to return.
void explain(const std::string& text) noexcept;

// What a system call gave, as -errno.
template <typename Result>
Result result_of(Result result) {
  return result < 0 ? static_cast<Result>(-errno) : result;
}

// One more descriptor for the same; closed by exec.
Fd one_more(int fd);

// Lasts as long as a call: while its inner parts work, a cancellation would leave them half done.
class Call {
 public:
  Call() : outer_(callers_state) { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &callers_state); }
  ~Call() {
    pthread_setcancelstate(callers_state, nullptr);
    callers_state = outer_;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Within a call: lets a cancellation in, if the caller did.
  class Sleep {
   public:
    Sleep() { pthread_setcancelstate(callers_state, nullptr); }
    ~Sleep() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr); }
    Sleep(const Sleep&) = delete;
    Sleep& operator=(const Sleep&) = delete;
  };

 private:
  static thread_local int callers_state;
  const int outer_;  // of a call around this one: cleanup handlers run inside of a sleep
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
