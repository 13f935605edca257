// Questions to a connection's leat-attestd that are begun by one call and finished by a later one.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>

#include "attest/kernel_connection.h"
#include "base/clock.h"
#include "base/fd.h"
#include "leat/attest/isolated_kernel.h"

namespace leat::trusted::detail {

// The questions that one side of a connection asks, one request at a time, and the event that wakes
// its sleeper. No call blocks. Once the daemon has ended, or has not answered for
// KernelConnection::kPatience, questions get kUnavailable.
//
// Owner: the transport; the kernel must outlive it. If it is destroyed while a request is under
// way, the request's slot is used again only once the daemon has answered. Threads: that side's.
class OpenQuestions {
 public:
  // `also_wakes`: what else makes event_fd() readable, or -1. Throws kResource, kSystem.
  OpenQuestions(IsolatedKernel& kernel, int also_wakes);
  ~OpenQuestions();
  OpenQuestions(const OpenQuestions&) = delete;
  OpenQuestions& operator=(const OpenQuestions&) = delete;

  // Asks as many of `questions`, from the first, as one request carries, and returns how many these
  // are; 0: no slot is free now, so nothing was asked. Their bytes are read by this call only; the
  // questions themselves must stay until they are finished. Not while a request is under way. Look
  // for the answer before a sleep.
  std::size_t begin(std::span<Question> questions) noexcept;
  // Whether all that were begun have their verdicts and proofs. At once also if there are none.
  bool try_finish() noexcept;

  // Whether an answer is there, which try_finish() takes.
  bool answered() const noexcept;
  // Whether event_fd() announces what is waited for. It does not if the last begin() found no slot,
  // nor for any but the first request that was begun after arm().
  bool announces() const noexcept {
    return !lacks_slot_ && (!ticket_.under_way() || armed_.load(std::memory_order_relaxed));
  }

  // Readable, after arm(), once there is an answer to the request that is under way or else to the
  // next one, the daemon has ended, or patience is over; and whenever `also_wakes` is.
  int event_fd() const { return set_.get(); }
  // `other`: the other side's. Look once more before the sleep.
  void arm(OpenQuestions& other) noexcept;

 private:
  void arm_request() noexcept;
  void wake_at(leat::detail::Deadline when) noexcept;

  IsolatedKernel& kernel_;
  KernelConnection& connection_;
  KernelConnection::Ticket ticket_;
  std::span<Question> begun_;
  bool lacks_slot_ = false;
  bool arms_next_ = false;  // the next request is to be armed as it is begun
  // Set while the request is to wake the sleeper by the connection's wakes, which either side
  // takes.
  std::atomic<bool> armed_{false};
  const leat::detail::Fd timer_;  // fires when patience is over, or when the other side says so
  const leat::detail::Fd set_;
};

}  // namespace leat::trusted::detail
