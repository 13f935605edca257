// Waiting for several channels at once: the one place where leat does.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "leat/channel.h"
#include "verbs/device.h"

namespace leat::detail {

class AnyWaiter {
 public:
  struct How {
    Side side = Side::kReceive;
    bool room_too = false;  // what is waited for may also be room, of the calling thread's
    int other_fd = -1;      // ends a sleep too when it is readable
    std::chrono::microseconds spin{0};
    Deadline deadline = kNoDeadline;
  };
  enum class End { kDone, kGone, kDeadline };

  // `channels` is read again after each call of `done`, which may take some out,
  // but add none.
  AnyWaiter(const std::span<Channel* const>& channels, const How& how)
      : channels_(channels), how_(how) {}

  // Until `done` returns true, or the deadline, or a peer went away; then `done` had another look.
  // `done` tries that side of every channel.
  End wait(const std::function<bool()>& done);
  // The one that went away.
  Channel* gone() const { return gone_; }

 private:
  bool find_gone();
  bool room_soon() const;
  bool takes_nap() const;
  void nap_briefly();
  void poll_also(Channel* channel);
  void sleep(std::chrono::microseconds& nap);

  const std::span<Channel* const>& channels_;
  const How how_;
  Channel* gone_ = nullptr;
  std::vector<pollfd> polled_;
};

}  // namespace leat::detail
