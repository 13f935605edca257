#include "base/fork.h"

#include <pthread.h>

namespace leat::detail {

std::atomic<unsigned> ForkGeneration::generation{0};

unsigned ForkGeneration::start() noexcept {
  static const bool watching [[maybe_unused]] =
      pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); }) == 0;
  return now();
}

}  // namespace leat::detail
