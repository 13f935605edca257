#include "capi/waiting.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <vector>

#include "base/spin_budget.h"
#include "base/timer_slack.h"
#include "capi/call.h"
#include "channel/channel_wait.h"
#include "posix/times.h"

namespace leat::detail::c {
namespace {

constexpr unsigned kAlways = POLLERR | POLLHUP | POLLNVAL;
constexpr unsigned kReceiving = POLLIN | POLLRDNORM | POLLRDHUP;

// A call that polls few allocates nothing.
constexpr std::size_t kFew = 8;

// Any thread may wait for any handle.
constinit thread_local SpinBudget spin_budget;

class Polling {
 public:
  Polling(std::span<pollfd> fds, std::span<Pollable* const> objects)
      : fds_(fds), objects_(objects) {
    if (fds.size() <= few_.size()) {
      kernels_ = std::span(few_).first(fds.size());
    } else {
      many_.resize(fds.size());
      kernels_ = many_;
    }
    for (std::size_t i = 0; i < fds.size(); ++i) {
      kernels_[i] = fds[i];
      if (objects[i] != nullptr) kernels_[i].fd = -1;
      has_ordinary_ = has_ordinary_ || (objects[i] == nullptr && fds[i].fd >= 0);
    }
  }

  // How many objects have something.
  long look(bool prepare) {
    long count = 0;
    silent_ = false;
    for (std::size_t i = 0; i < fds_.size(); ++i) {
      if (objects_[i] == nullptr) continue;
      const auto events = static_cast<unsigned short>(fds_[i].events);
      const unsigned mask = objects_[i]->mask(prepare);
      fds_[i].revents = static_cast<short>(mask & (events | kAlways));
      if (fds_[i].revents != 0) ++count;
      if (!prepare) continue;
      silent_ = silent_ || objects_[i]->waits_silently(events);
      // What is readable already and not asked for would end each sleep at once.
      const bool readable = (mask & (kReceiving | kAlways)) != 0;
      silent_ = silent_ || readable;
      kernels_[i] = {readable ? -1 : objects_[i]->fd(), POLLIN, 0};
    }
    return count;
  }

  // How many of the kernel's own have something; -errno.
  long look_at_ordinary() {
    if (!has_ordinary_) return 0;
    for (std::size_t i = 0; i < fds_.size(); ++i)
      if (objects_[i] != nullptr) kernels_[i].fd = -1;
    const int ready = poll(kernels_.data(), kernels_.size(), 0);
    return ready < 0 ? -errno : take_ordinary();
  }

  long sleep(Deadline deadline, const sigset_t& signals) {
    std::optional<TimerSlack> slack;
    if (silent_) {
      deadline = std::min(deadline, Clock::now() + nap_);
      slack.emplace(nap_ / 8);
      nap_ = std::min<std::chrono::microseconds>(nap_ * 2, kLongestNap);
    }
    const int result = sleep_in_kernel(kernels_, deadline, signals);
    return result < 0 ? result : take_ordinary();
  }

  std::chrono::microseconds spin() const {
    std::chrono::microseconds longest{0};
    for (std::size_t i = 0; i < fds_.size(); ++i) {
      if (objects_[i] == nullptr || (static_cast<unsigned>(fds_[i].events) & kReceiving) == 0)
        continue;
      const auto one = objects_[i]->spin();
      if (one < std::chrono::microseconds::zero()) return one;
      longest = std::max(longest, one);
    }
    return longest;
  }

 private:
  long take_ordinary() {
    long count = 0;
    for (std::size_t i = 0; i < fds_.size(); ++i) {
      if (objects_[i] != nullptr) continue;
      fds_[i].revents = kernels_[i].revents;
      if (fds_[i].revents != 0) ++count;
    }
    return count;
  }

  const std::span<pollfd> fds_;
  const std::span<Pollable* const> objects_;
  std::array<pollfd, kFew> few_{};
  std::vector<pollfd> many_;
  std::span<pollfd> kernels_;
  bool has_ordinary_ = false;
  bool silent_ = false;
  std::chrono::microseconds nap_ = kFirstNap;
};

// Whether every handler that the program has installed wants calls to go on. Which one ran is not
// to be known.
bool handlers_restart() {
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0) continue;
    const bool handled = (action.sa_flags & SA_SIGINFO) != 0 ||
                         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
    if (handled && (action.sa_flags & SA_RESTART) == 0) return false;
  }
  return true;
}

}  // namespace

int sleep_in_kernel(std::span<pollfd> fds, Deadline deadline, const sigset_t& signals) {
  const timespec time = posix::time_left(deadline);
  const Call::Sleep sleep;
  const int ready =
      ppoll(fds.data(), fds.size(), deadline == kNoDeadline ? nullptr : &time, &signals);
  return ready < 0 ? -errno : ready;
}

long poll_all(std::span<pollfd> fds, std::span<Pollable* const> objects, Deadline deadline,
              const sigset_t* signals) {
  Polling polling(fds, objects);
  long ordinary = polling.look_at_ordinary();
  if (ordinary < 0) return ordinary;
  if (const long count = polling.look(false) + ordinary; count != 0) return count;
  const auto spun = [&] {
    return spin_for(
        spin_budget, polling.spin(), [&] { return polling.look(false) != 0; },
        [&](Deadline now) { return now >= deadline; },
        [&] { return polling.look(true) != 0 || (ordinary = polling.look_at_ordinary()) != 0; });
  };
  if (!passed(deadline)) spun();
  const SignalsHeld held;
  for (;;) {
    if (const long count = polling.look(true) + ordinary; count != 0) return count;
    if (passed(deadline) && signals == nullptr) return polling.look_at_ordinary();
    ordinary = polling.sleep(deadline, signals != nullptr ? *signals : held.before());
    if (ordinary < 0) return ordinary;
    if (passed(deadline)) return polling.look(true) + ordinary;
  }
}

int wait_for(Handle& handle, unsigned events, Deadline deadline, bool some) {
  pollfd entry{0, static_cast<short>(events), 0};
  Pollable* const object = &handle;
  for (;;) {
    const long result = poll_all({&entry, 1}, {&object, 1}, deadline, nullptr);
    if (result > 0) return 1;
    if (result == 0) return -EAGAIN;
    if (result != -EINTR || some || deadline != kNoDeadline || !handlers_restart())
      return static_cast<int>(result);
  }
}

}  // namespace leat::detail::c
