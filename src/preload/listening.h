// Who of all that use one end of a connection hears the doorbell.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <utility>

#include "preload/real.h"
#include "preload/shared_memory.h"
#include "preload/side_lock.h"

namespace leat::preload {

// Rings must only be taken off the kernel's socket by the one that listens, else another may sleep
// for ever; those that cannot be it sleep on Side::turn. Let go also when the thread is cancelled.
class Listening {
 public:
  Listening() noexcept = default;
  explicit Listening(Side* side) noexcept : side_(side) {
    if (side_ == nullptr) return;
    // Before the look at who listens: that one changes it after it has let go.
    turn_ = side_->turn.load(std::memory_order_seq_cst);
    std::uint32_t expected = 0;
    ours_ =
        side_->listener.compare_exchange_strong(expected, thread_id(), std::memory_order_acq_rel);
    // One that was killed listens no more.
    if (!ours_ && kill(static_cast<pid_t>(expected), 0) != 0 && errno == ESRCH)
      ours_ =
          side_->listener.compare_exchange_strong(expected, thread_id(), std::memory_order_acq_rel);
  }
  ~Listening() {
    if (!ours_) return;
    side_->listener.store(0, std::memory_order_release);
    pass_on();
  }
  Listening(Listening&& other) noexcept
      : side_(other.side_), turn_(other.turn_), ours_(std::exchange(other.ours_, false)) {}
  Listening& operator=(Listening&&) = delete;
  bool ours() const noexcept { return ours_; }
  // If it is not ours: what Side::turn is as long as the one that listens has not let go.
  std::uint32_t turn() const noexcept { return turn_; }

 private:
  // The ring may have been for another.
  void pass_on() noexcept {
    side_->turn.fetch_add(1, std::memory_order_seq_cst);
    if (side_->others.load(std::memory_order_seq_cst) != 0)
      system_call(SYS_futex, &side_->turn, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }

  Side* side_ = nullptr;
  std::uint32_t turn_ = 0;
  bool ours_ = false;
};

}  // namespace leat::preload
