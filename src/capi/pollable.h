// What leat_poll, leat_select and leat_epoll_wait can wait for besides the kernel's descriptors.
#pragma once

#include <chrono>

#include "base/fork.h"
#include "posix/epoll_interest.h"

namespace leat::detail::c {

// Any thread. No call blocks.
class Pollable {
 public:
  virtual ~Pollable() = default;

  // False in a forked child of the process that made it.
  bool made_here() const { return static_cast<bool>(made_here_); }

  // POLLIN and so on. With `prepare` fd() becomes readable when there is more.
  virtual unsigned mask(bool prepare) = 0;
  // A descriptor for poll(2), which stays while this does; readable when mask() may have changed,
  // but for room to send.
  virtual int fd() = 0;
  // A waiter for `events` must look again after a short while, because no event tells.
  virtual bool waits_silently(unsigned events) = 0;
  // How long it pays to spin for it before sleeping; zero: not at all, negative: for ever.
  virtual std::chrono::microseconds spin() const = 0;
  // Takes in all that has come; fd() becomes readable when there is more.
  virtual void drain() = 0;
  // What an edge-triggered waiter compares, as far as mask() and drain() saw.
  virtual posix::EdgeMarks marks() = 0;

 private:
  const MadeHere made_here_{};
};

}  // namespace leat::detail::c
