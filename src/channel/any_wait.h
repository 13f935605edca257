// Waits for several channels at once. All waits for more than one channel go through it.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/spin_budget.h"
#include "leat/channel.h"
#include "verbs/device.h"

namespace leat::detail {

class AnyWaiter {
 public:
  struct How {
    Side side = Side::kReceive;
    bool room_too = false;  // the caller also waits for room, on the send side of its own thread
    int other_fd = -1;      // also ends a sleep when it becomes readable
    SpinBudget& budget;     // outlives this wait
    std::chrono::microseconds spin{0};
    Deadline deadline = kNoDeadline;
  };
  enum class End { kDone, kGone, kDeadline };

  // `channels` is read again after each call of `done`, which may remove some of them but add none.
  AnyWaiter(const std::span<Channel* const>& channels, const How& how)
      : channels_(channels), how_(how) {}

  // Blocks until `done` returns true, until the deadline, or until a peer went away and a further
  // call of `done` returned false. `done` tries that side of every channel.
  End wait(const std::function<bool()>& done);
  // After kGone: the channel whose peer went away.
  Channel* gone() const { return gone_; }

 private:
  bool find_gone();
  bool any_unannounced() const;
  bool room_soon() const;
  bool takes_nap() const;
  void nap_briefly();
  void poll_also(Channel* channel);
  class Sleep;
  // Returns whether a lifeline may have ended.
  bool sleep(std::chrono::microseconds& nap);

  const std::span<Channel* const>& channels_;
  const How how_;
  Channel* gone_ = nullptr;
  std::vector<pollfd> polled_;
  std::vector<std::size_t> lifelines_;  // indexes in polled_
};

}  // namespace leat::detail
