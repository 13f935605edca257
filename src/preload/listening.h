// Which of all the threads that use one end of a connection hears the doorbell.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <utility>

#include "preload/end_state.h"
#include "preload/real.h"

namespace leat::preload {

// Rings must only be taken off the kernel's socket by the one that listens, else another may sleep
// for ever; those that cannot be it sleep on EndState::turn. Let go also when the thread is
// cancelled.
class Listening {
 public:
  Listening() noexcept = default;
  explicit Listening(EndState* end) noexcept : end_(end) {
    if (end_ == nullptr) return;
    // Before the look at the listener: a listener changes it after it has let go.
    turn_ = end_->turn.load(std::memory_order_seq_cst);
    ours_ = end_->listener.try_lock();
  }
  ~Listening() {
    if (!ours_) return;
    end_->listener.unlock();
    pass_on();
  }
  Listening(Listening&& other) noexcept
      : end_(other.end_), turn_(other.turn_), ours_(std::exchange(other.ours_, false)) {}
  Listening& operator=(Listening&&) = delete;
  bool ours() const noexcept { return ours_; }
  // If it is not ours: what EndState::turn is as long as the one that listens has not let go.
  std::uint32_t turn() const noexcept { return turn_; }

 private:
  // The ring may have been for another.
  void pass_on() noexcept {
    end_->turn.fetch_add(1, std::memory_order_seq_cst);
    if (end_->others.load(std::memory_order_seq_cst) != 0)
      system_call(SYS_futex, &end_->turn, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }

  EndState* end_ = nullptr;
  std::uint32_t turn_ = 0;
  bool ours_ = false;
};

}  // namespace leat::preload
