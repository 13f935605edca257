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
#include "posix/poll_engine.h"
#include "posix/signals.h"
#include "posix/times.h"

namespace leat::detail::c {
namespace {

constexpr unsigned kReceiving = POLLIN | POLLRDNORM | POLLRDHUP;

// Any thread may wait for any handle.
constinit thread_local SpinBudget spin_budget;

// A descriptor that stands for a handle or a set.
struct Ours {
  std::size_t index;
  Pollable* object;
  unsigned short events;
};

// PollEngine's policy.
class Polling {
 public:
  Polling(std::span<const Ours> ours, const sigset_t* signals) : ours_(ours), signals_(signals) {}

  std::span<const Ours> ours() const { return ours_; }
  static unsigned look(const Ours& one) { return one.object->mask(false); }

  // From the first sleep on, a signal ends the call.
  void begin(bool sleeps, bool found) {
    if (sleeps && !held_) held_.emplace();
    closely_ = !found;
    silent_ = false;
  }

  unsigned arm(const Ours& one, pollfd& asked, bool) {
    const unsigned mask = one.object->mask(closely_);
    asked.fd = -1;
    if (!closely_) return mask;
    // What is readable already and not asked for would end each sleep at once.
    const bool readable = (mask & (kReceiving | posix::kAlways)) != 0;
    silent_ = silent_ || readable || one.object->waits_silently(one.events);
    if (!readable) asked = {one.object->fd(), POLLIN, 0};
    return mask;
  }

  std::chrono::nanoseconds nap() const { return silent_ ? nap_ : std::chrono::nanoseconds::max(); }

  short woken(const Ours& one, short) const {
    return static_cast<short>(one.object->mask(closely_) & (one.events | posix::kAlways));
  }

  bool answers_alone(bool ready) const { return ready || signals_ == nullptr; }

  long spin(posix::PollEngine<Polling>& engine, Deadline deadline) const {
    if (engine.kernel_has_any()) return 1;
    long ready = 0;
    spin_for(
        spin_budget, longest_spin(), [&] { return (ready = engine.look()) != 0; },
        [&](Deadline now) { return now >= deadline; },
        [&] {
          return engine.kernel_has_any() ||
                 std::any_of(ours_.begin(), ours_.end(), [](const Ours& one) {
                   return (one.object->mask(true) & (one.events | posix::kAlways)) != 0;
                 });
        });
    return ready;
  }

  static int poll_now(std::span<pollfd> asked) {
    return result_of(poll(asked.data(), asked.size(), 0));
  }

  int sleep(std::span<pollfd> asked, Deadline until, bool ready) {
    if (ready || (signals_ == nullptr && passed(until))) return poll_now(asked);
    std::optional<TimerSlack> slack;
    if (silent_) {
      slack.emplace(nap_ / 8);
      nap_ = std::min<std::chrono::microseconds>(nap_ * 2, kLongestNap);
    }
    return sleep_in_kernel(asked, until, signals_ != nullptr ? *signals_ : held_->before());
  }

 private:
  std::chrono::microseconds longest_spin() const {
    std::chrono::microseconds longest{0};
    for (const Ours& one : ours_) {
      if ((one.events & kReceiving) == 0) continue;
      const auto time = one.object->spin();
      if (time < std::chrono::microseconds::zero()) return time;
      longest = std::max(longest, time);
    }
    return longest;
  }

  const std::span<const Ours> ours_;
  const sigset_t* const signals_;
  std::optional<SignalsHeld> held_;
  bool closely_ = true;  // no look has found anything yet
  bool silent_ = false;
  std::chrono::microseconds nap_ = kFirstNap;
};

// Whether every handler that the program has installed lets calls go on. Nothing tells which of
// them ran.
bool handlers_restart() {
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) == 0 && posix::interrupts_calls(action)) return false;
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
  std::array<Ours, 1> one{};  // a blocking call at one handle allocates nothing
  std::vector<Ours> many;
  std::span<const Ours> ours;
  if (fds.size() == 1 && objects[0] != nullptr) {
    one[0] = {0, objects[0], static_cast<unsigned short>(fds[0].events)};
    ours = one;
  } else {
    for (std::size_t i = 0; i < fds.size(); ++i)
      if (objects[i] != nullptr)
        many.push_back({i, objects[i], static_cast<unsigned short>(fds[i].events)});
    ours = many;
  }
  Polling polling(ours, signals);
  return posix::PollEngine(polling, fds).run(deadline);
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
