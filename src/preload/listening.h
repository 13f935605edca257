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

// Only the listening thread may take doorbells off the kernel's socket, else another one may sleep
// for ever; the other threads sleep on EndState::turn. A cancelled thread lets go, too.
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
  // If it is not ours: the value of EndState::turn until the listening thread lets go.
  std::uint32_t turn() const noexcept { return turn_; }

 private:
  // The doorbell may have been for another thread.
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
