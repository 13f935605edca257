// Waiting: spin for a while, then sleep in the kernel until the bell rings.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

#include "preload/connection.h"
#include "preload/signal_watch.h"

namespace leat::preload {

// Looks for what a caller waits for until its time is over. The time adapts within LEAT_SPIN_US: it
// shrinks where looking was in vain. Now and then the core is offered to others, and where they
// take it the time is nothing for a while. So idle threads, and more threads than cores, do not
// burn them.
class Spin {
 public:
  Spin() noexcept;
  // Whether to look once more.
  bool again() noexcept;
  void found() noexcept;
  // Whether it is time to look also at what takes a system call.
  bool look_further() const noexcept { return further_; }
  // Whether it took so long by now that timeouts count.
  bool is_long() const noexcept { return watch_.has_value(); }
  // What ended it, if it was a signal; afterwards its handler has run.
  SignalWatch::Came signal() noexcept;

 private:
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point looked_;   // at the clock
  std::chrono::steady_clock::time_point offered_;  // the core
  std::chrono::nanoseconds limit_;
  unsigned rounds_ = 0;
  bool further_ = false;
  std::optional<SignalWatch> watch_;  // once it takes long
  SignalWatch::Came signal_ = SignalWatch::Came::kNothing;
};

// Counts its owner among those who sleep, also if that is cancelled.
class Counted {
 public:
  explicit Counted(std::atomic<std::uint32_t>& count) noexcept : count_(count) {
    count_.fetch_add(1, std::memory_order_seq_cst);
  }
  ~Counted() { count_.fetch_sub(1, std::memory_order_seq_cst); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<std::uint32_t>& count_;
};

// When a socket timeout (SO_RCVTIMEO, SO_SNDTIMEO) that runs from `start` passes;
// time_point::max(): never.
std::chrono::steady_clock::time_point socket_deadline(
    int fd, int option,
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now()) noexcept;

enum class Want { kData, kRoom };

// How long one call may wait in all, however often it has to.
class Patience {
 public:
  Patience(int fd, Want want) noexcept : fd_(fd), want_(want) {}
  Want want() const noexcept { return want_; }
  // Before each wait. True: it is the first, which the kernel's own recv() times as it should.
  bool begin() noexcept;
  // When the socket's timeout passes. Asks the kernel, once.
  std::chrono::steady_clock::time_point end() noexcept;
  bool ends() noexcept { return end() != std::chrono::steady_clock::time_point::max(); }

 private:
  const int fd_;
  const Want want_;
  std::optional<std::chrono::steady_clock::time_point> start_;
  std::optional<std::chrono::steady_clock::time_point> end_;
};

// Blocks until there may be `bytes` of data, or room for them (or part). Returns 0: look again; or
// an errno: EINTR, EAGAIN (the descriptor does not block, or its timeout has passed). A signal
// whose handler wants calls to go on (SA_RESTART) does not end it, unless the call has `some` bytes
// already, or a timeout. A cancellation point.
int wait_for(int fd, Connection& connection, Patience& patience, std::size_t bytes, bool some);

// Milliseconds after which who waits for an offer looks again.
inline constexpr int kDecisionNap = 5;

bool is_nonblocking(int fd) noexcept;

}  // namespace leat::preload
