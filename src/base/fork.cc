#include "base/fork.h"

#include <pthread.h>

namespace leat::detail {

std::atomic<unsigned> ForkGeneration::count_{0};

unsigned ForkGeneration::start() noexcept {
  static const bool watching [[maybe_unused]] =
      pthread_atfork(nullptr, nullptr, [] { count_.fetch_add(1, std::memory_order_relaxed); }) == 0;
  return now();
}

}  // namespace leat::detail
