// A store-load barrier whose cost is on the rare side only.
//
// Sleeping needs Dekker's handshake: the sleeper writes "armed" and then looks for data, the waker
// writes data and then looks for "armed"; both need a full barrier between their store and their
// load, or both may miss. The waker is on the hot path, so the sleeper pays for both: membarrier(2)
// makes every registered process that runs now pass a full barrier, and the waker's own may shrink
// to a compiler barrier. Where a process cannot register, light_barrier(false) is a real fence.
#pragma once

#include <atomic>

namespace leat::detail {

// Registers this process for heavy barriers of other processes; cheap to repeat. Returns false if
// the system does not support them.
bool register_for_heavy_barriers() noexcept;

// The sleeper's side. `asymmetric` false: an ordinary fence, to pair with light_barrier(false).
void heavy_barrier(bool asymmetric) noexcept;

// Joins the heavy barriers of this thread into one. Each is a system call that interrupts every
// processor on which a registered process runs, and a thread that sleeps on several channels needs
// one for each. While this object lives, heavy_barrier() only notes that a barrier is wanted; the
// destructor issues it. The thread must look for the wakers' data after that.
class JoinedBarriers {
 public:
  JoinedBarriers() noexcept;
  ~JoinedBarriers();
  JoinedBarriers(const JoinedBarriers&) = delete;
  JoinedBarriers& operator=(const JoinedBarriers&) = delete;
};

// The waker's side. `asymmetric` must hold for both processes: each has registered.
inline void light_barrier(bool asymmetric) noexcept {
  if (asymmetric) {
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the peer's membarrier does the rest
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
}

}  // namespace leat::detail
