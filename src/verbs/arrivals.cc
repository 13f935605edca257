#include "verbs/arrivals.h"

#include <sys/eventfd.h>

namespace leat::detail {

void wake_if_armed(std::atomic<std::uint32_t>& armed, int peer_event) noexcept {
  if (armed.load(std::memory_order_relaxed) == 0) return;
  armed.store(0, std::memory_order_relaxed);
  eventfd_write(peer_event, 1);
}

}  // namespace leat::detail
