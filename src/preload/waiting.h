// Waiting: spin for a while, then sleep in the kernel until the bell rings.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

#include "base/spin_budget.h"
#include "posix/times.h"
#include "preload/connection.h"
#include "preload/signal_watch.h"

namespace leat::preload {

// A sleeper that does not listen to the bell itself looks so often, in case the listener is killed.
inline constexpr auto kNap = std::chrono::milliseconds(10);

// Looks for what a caller waits for within LEAT_SPIN_US, for as long as this thread has learnt that
// it pays, and minds signals that come meanwhile.
class Spin {
 public:
  Spin() noexcept;
  // Before each look: whether to look.
  bool again() noexcept;
  void found() noexcept { spin_.found(); }
  // Whether it is time to look also at what takes a system call.
  bool look_further() const noexcept { return further_; }
  // Whether it took so long by now that timeouts count.
  bool is_long() const noexcept { return watch_.has_value(); }
  // What ended it, if it was a signal; afterwards its handler has run.
  SignalWatch::Came signal() noexcept;

 private:
  detail::Spin spin_;
  std::chrono::nanoseconds next_further_;
  std::chrono::nanoseconds next_watch_;
  bool further_ = false;
  std::optional<SignalWatch> watch_;  // once it takes long
  SignalWatch::Came signal_ = SignalWatch::Came::kNothing;
};

// Counts its owner among the sleepers, also if its thread is cancelled.
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

// When a socket timeout (SO_RCVTIMEO, SO_SNDTIMEO) that runs from `start` passes.
posix::Deadline socket_deadline(int fd, int option,
                                posix::Deadline start = posix::Clock::now()) noexcept;

enum class Want { kData, kRoom };

// How long one call may wait in all, however often it has to.
class Patience {
 public:
  Patience(int fd, Want want) noexcept : fd_(fd), want_(want) {}
  Want want() const noexcept { return want_; }
  // Before each wait. True: it is the first, which the kernel's own recv() times as it should.
  bool begin() noexcept;
  // When the socket's timeout passes. Asks the kernel, once.
  posix::Deadline end() noexcept;
  bool ends() noexcept { return end() != posix::kNoDeadline; }

 private:
  const int fd_;
  const Want want_;
  std::optional<posix::Deadline> start_;
  std::optional<posix::Deadline> end_;
};

// Blocks until there may be `bytes` of data, or room for them (or part). Returns 0: look again; or
// an errno: EINTR, EAGAIN (the timeout of the descriptor, which blocks, has passed). A signal
// whose handler wants calls to go on (SA_RESTART) does not end it, unless the call has `some` bytes
// already, or a timeout. A cancellation point.
int wait_for(int fd, Connection& connection, Patience& patience, std::size_t bytes, bool some);

// Milliseconds after which a waiter for an offer looks again.
inline constexpr int kDecisionNap = 5;

bool is_nonblocking(int fd) noexcept;

}  // namespace leat::preload
