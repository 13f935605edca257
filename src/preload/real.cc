#include "preload/real.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace leat::preload {
namespace {

std::atomic<const Real*> found_calls{nullptr};

template <typename Function>
void look_up(Function& function, const char* name) noexcept {
  function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

// Threads that come first together each look up their own, and one is kept. Neither a lock nor
// malloc: dlsym or a signal handler may come here again, and the caller may be malloc.
const Real& find() noexcept {
  void* memory =
      mmap(nullptr, sizeof(Real), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  auto* mine = new (memory) Real{};
#define LEAT_LOOK_UP(name) look_up(mine->name, #name);
  LEAT_REAL_FUNCTIONS(LEAT_LOOK_UP)
#undef LEAT_LOOK_UP
  look_up(mine->fcntl, "fcntl64");
  look_up(mine->ioctl, "ioctl");
  look_up(mine->longjmp, "siglongjmp");
  look_up(mine->longjmp_checked, "__longjmp_chk");
  // Release: a thread that sees the pointer sees what it points to. Acquire, if another was first.
  const Real* first = nullptr;
  if (found_calls.compare_exchange_strong(first, mine, std::memory_order_release,
                                          std::memory_order_acquire))
    return *mine;
  munmap(memory, sizeof(Real));
  return *first;
}

}  // namespace

const Real& real() noexcept {
  const Real* known = found_calls.load(std::memory_order_acquire);
  return known != nullptr ? *known : find();
}

}  // namespace leat::preload
