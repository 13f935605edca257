#include "base/asymmetric_barrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace leat::detail {
namespace {

struct Joined {
  int scopes = 0;  // around each other
  bool wanted = false;
  bool asymmetric = false;  // one of them was
};
thread_local Joined joined;

}  // namespace

bool register_for_heavy_barriers() noexcept {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void heavy_barrier(bool asymmetric) noexcept {
  if (joined.scopes != 0) {
    joined.wanted = true;
    joined.asymmetric |= asymmetric;
    return;
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (asymmetric) syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

JoinedBarriers::JoinedBarriers() noexcept { ++joined.scopes; }

JoinedBarriers::~JoinedBarriers() {
  if (--joined.scopes != 0 || !joined.wanted) return;
  joined.wanted = false;
  heavy_barrier(std::exchange(joined.asymmetric, false));
}

}  // namespace leat::detail
