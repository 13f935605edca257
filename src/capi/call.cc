#include "capi/call.h"

#include <fcntl.h>

#include <system_error>
#include <utility>

#include "base/system_error.h"

namespace leat::detail::c {
namespace {

struct LastError {
  const char* call = nullptr;
  int error = 0;
  std::string text;
  std::string explanation;  // of a failure that is under way
};
thread_local LastError last;

}  // namespace

thread_local int Call::callers_state = PTHREAD_CANCEL_ENABLE;

long failed(const char* call, int error, const char* text) noexcept {
  last.call = call;
  last.error = error;
  try {
    if (text != nullptr) {
      last.text = text;
    } else {
      last.text = std::exchange(last.explanation, {});
    }
  } catch (const std::bad_alloc&) {
    last.text.clear();
  }
  errno = error;
  return -1;
}

const char* last_error() noexcept {
  const int kept = errno;
  try {
    if (last.text.empty() && last.call != nullptr)
      last.text = std::string(last.call) + ": " + std::generic_category().message(last.error);
  } catch (const std::bad_alloc&) {
    last.text.clear();
  }
  errno = kept;
  return last.text.c_str();
}

void explain(const std::string& text) noexcept {
  try {
    last.explanation = text;
  } catch (const std::bad_alloc&) {
    last.explanation.clear();
  }
}

Fd one_more(int fd) { return Fd(check(fcntl(fd, F_DUPFD_CLOEXEC, 0), "fcntl(F_DUPFD_CLOEXEC)")); }

}  // namespace leat::detail::c
