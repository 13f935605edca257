#include "preload/real.h"

#include <dlfcn.h>

#include <atomic>

namespace leat::preload {
namespace {

Real functions;
std::atomic<bool> ready{false};

template <typename Function>
void look_up(Function& function, const char* name) noexcept {
  function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

const Real& real() noexcept {
  // Acquire, with the release below: who sees `ready` sees the pointers. Two threads that come here
  // together write the same values.
  if (!ready.load(std::memory_order_acquire)) [[unlikely]] {
#define LEAT_LOOK_UP(name) look_up(functions.name, #name);
    LEAT_REAL_FUNCTIONS(LEAT_LOOK_UP)
#undef LEAT_LOOK_UP
    look_up(functions.fcntl, "fcntl64");
    look_up(functions.ioctl, "ioctl");
    ready.store(true, std::memory_order_release);
  }
  return functions;
}

}  // namespace leat::preload
