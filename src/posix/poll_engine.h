// Implements poll(2) over entries of which some are ours and the others the kernel's.
#pragma once

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "posix/times.h"

namespace leat::posix {

// What poll(2) reports though the caller did not ask for it.
inline constexpr unsigned kAlways = POLLERR | POLLHUP | POLLNVAL;

// One call of poll(2), for one thread: looks, spins, arms, looks again, and sleeps in the kernel.
// Throws only what the policy throws; a cancellation passes through. The policy:
//
//   ours()                     the entries that the kernel cannot answer for; each has its `index`
//   look(one)                  poll(2)'s mask of an entry, without a system call where possible
//   begin(sleeps, found)       comes before the entries are armed; `found`: one was ready before
//   arm(one, asked, sleeps)    sets what the kernel is asked in place of that entry; if the caller
//                              `sleeps`, arms the entry first. Returns the mask of afterwards
//   nap()                      how long the sleep may last, as news of an armed entry may be silent
//   woken(one, rung)           undoes arm(); returns revents, given the kernel's answer to `asked`
//   answers_alone(ready)       whether to return without the kernel if all entries are ours and
//                              `ready` says whether one of them has something
//   spin(engine, deadline)     1: something was found, 0: nothing, or -errno
//   poll_now(asked)            poll(2) without a wait
//   sleep(asked, until, ready) the kernel's ppoll(2), -errno. If one of ours is `ready` there is no
//                              wait, and no signal may end the call
template <typename Policy>
class PollEngine {
 public:
  PollEngine(Policy& policy, std::span<pollfd> fds) : policy_(policy), fds_(fds) {
    if (fds.size() <= few_.size()) {
      asked_ = std::span(few_).first(fds.size());
    } else {
      many_.resize(fds.size());
      asked_ = many_;
    }
    ask_kernels();
    has_kernels_ = std::any_of(asked_.begin(), asked_.end(), [](auto& one) { return one.fd >= 0; });
  }

  // How many entries have revents now; 0 at the deadline; -errno.
  long run(Deadline deadline) {
    for (pollfd& one : fds_) one.revents = 0;
    const bool at_once = passed(deadline);
    long ready = look();
    if (ready == 0 && !at_once) ready = policy_.spin(*this, deadline);
    if (ready < 0) return ready;
    for (;;) {
      if (ready != 0 && is_whole(true)) return ready;
      const long found = ask(ready != 0 ? Deadline{} : deadline, ready != 0);
      if (found != 0 || at_once) return found;
      if (ready == 0 && passed(deadline)) return 0;
      ready = 0;
    }
  }

  // For spin(): how many of ours have something; sets their revents.
  long look() {
    long ready = 0;
    for (auto& one : policy_.ours()) ready += answer(one, policy_.look(one));
    return ready;
  }

  // For spin(): whether one of the kernel's has something.
  bool kernel_has_any() {
    if (!has_kernels_) return false;
    ask_kernels();
    return policy_.poll_now(asked_) > 0;
  }

 private:
  // Only the kernel's own entries.
  void ask_kernels() {
    std::copy(fds_.begin(), fds_.end(), asked_.begin());
    for (const auto& one : policy_.ours()) asked_[one.index].fd = -1;
  }

  bool is_whole(bool ready) const { return !has_kernels_ && policy_.answers_alone(ready); }

  template <typename One>
  int answer(const One& one, unsigned mask) {
    pollfd& entry = fds_[one.index];
    entry.revents =
        static_cast<short>(mask & (static_cast<unsigned short>(entry.events) | kAlways));
    return entry.revents != 0 ? 1 : 0;
  }

  // One sleep in the kernel until then, and what it brought. 0 also if there was nothing for the
  // caller.
  long ask(Deadline until, bool found_before) {
    const bool sleeps = !passed(until);
    policy_.begin(sleeps, found_before);
    std::copy(fds_.begin(), fds_.end(), asked_.begin());
    long ready = 0;
    for (auto& one : policy_.ours())
      ready += answer(one, policy_.arm(one, asked_[one.index], sleeps));
    // If one was found before, run() has asked: the kernel is due.
    if (!found_before && (ready != 0 || !sleeps) && is_whole(ready != 0)) return ready;
    if (ready != 0) {
      until = Deadline{};
    } else if (sleeps) {
      const std::chrono::nanoseconds nap = policy_.nap();
      const Deadline now = Clock::now();
      if (nap < until - now) until = now + nap;
    }
    if (const int woken = policy_.sleep(asked_, until, ready != 0); woken < 0) return woken;
    for (std::size_t i = 0; i < fds_.size(); ++i) fds_[i].revents = asked_[i].revents;
    for (auto& one : policy_.ours())
      fds_[one.index].revents = policy_.woken(one, asked_[one.index].revents);
    return std::count_if(fds_.begin(), fds_.end(), [](auto& one) { return one.revents != 0; });
  }

  Policy& policy_;
  const std::span<pollfd> fds_;
  std::array<pollfd, 8> few_{};  // a call that polls few allocates nothing
  std::vector<pollfd> many_;
  std::span<pollfd> asked_;
  bool has_kernels_ = false;
};

}  // namespace leat::posix
