#include "verbs/arrivals.h"

#include <sys/eventfd.h>

namespace leat::detail {

void wake(std::atomic<std::uint32_t>& armed, int peer_event) noexcept {
  armed.store(0, std::memory_order_relaxed);
  eventfd_write(peer_event, 1);
}

}  // namespace leat::detail
