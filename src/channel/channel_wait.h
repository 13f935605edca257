// How a channel waits. In a header because each wait is compiled into the loop that spins.
#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "base/asymmetric_barrier.h"
#include "base/spin_budget.h"
#include "channel/channel_core.h"
#include "leat/error.h"

namespace leat::detail {

// For polling callers: tries between two looks at the clock.
inline constexpr int kTriesPerClock = 32;
// The time between two looks at the lifeline, each a system call, in long spins and for polling
// callers.
inline constexpr auto kLifelineInterval = std::chrono::milliseconds(1);
// A waiter for room that comes without an event looks for it after naps, which grow from the first
// of these to the second.
inline constexpr auto kFirstNap = std::chrono::microseconds(20);
inline constexpr auto kLongestNap = std::chrono::milliseconds(1);

// A receiver that found this many messages since its last sleep takes this many naps instead of
// asking for an event at the next message: it then finds many messages at a time, and the sender
// finds room. As long as naps find as many, further naps follow; they get longer while the messages
// found take little of the room for messages.
inline constexpr std::uint64_t kMessagesPerNap = 64;
inline constexpr unsigned kNapsWithoutMany = 3;
inline constexpr auto kBriefNap = kFirstNap;
inline constexpr auto kLongestBriefNap = std::chrono::microseconds(80);

// What came before the lifeline's end may show late, because a device may be late with completions:
// so often in a row must a look find nothing before the peer counts as gone.
inline constexpr int kLooksAfterTheEnd = 64;
// Whether one of these looks finds something.
template <typename Look>
bool found_late(Look&& look) {
  for (int i = 0; i < kLooksAfterTheEnd; ++i)
    if (look()) return true;
  return false;
}

// Tries for as long as `budget` allows within the time `most`. Also ends when `stop`, which is
// called with the time at each look at the clock, returns true; or when `gone` does, a system call
// that is made rarely and only after a long time.
template <typename Try, typename Stop, typename Gone>
bool spin_for(SpinBudget& budget, std::chrono::microseconds most, Try&& try_once, Stop&& stop,
              Gone&& gone) {
  Spin spin(budget, most);
  std::chrono::nanoseconds next_look = kLifelineInterval;
  while (spin.again()) {
    if (try_once()) {
      spin.found();
      return true;
    }
    if (!spin.looked()) [[likely]]
      continue;
    if (stop(spin.now())) return false;
    if (spin.took() < next_look) continue;
    if (gone()) return false;
    next_look = spin.took() + kLifelineInterval;
  }
  return false;
}

// Sleeps until a descriptor is ready or the deadline has passed. Where some arrivals give no event,
// sleeps for at most kLongestNap; where none does, for `nap`, which grows.
void sleep_on(std::span<pollfd> fds, Outlook::Comes comes, Deadline deadline,
              std::chrono::microseconds& nap);

// To the transport, another thread's close() looks like the peer's death; it is reported as
// kClosed.
template <typename Call>
inline auto ChannelCore::ask(const char* what, Call&& call) const {
  try {
    return call();
  } catch (const Error& error) {
    rethrow(what, error);
  }
}

// Exists while a thread waits on one side of a channel, and refuses a second one.
class ChannelCore::Waiter {
 public:
  Waiter(ChannelCore& core, Side side) : core_(core), side_(side) { core.begin_wait(side); }
  ~Waiter() { core_.waiting_sides_.end(side_); }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

 private:
  ChannelCore& core_;
  const Side side_;
};

template <typename Try>
void ChannelCore::wait(Side side, const char* what, Try&& try_once) {
  const auto timeout = side == Side::kSend ? send_timeout_ : receive_timeout_;
  const auto attempt = [&] { return ask(what, try_once); };
  // From the first look at the clock on, so that shorter waits stay fast.
  std::optional<Waiter> waiter;
  Deadline deadline = kNoDeadline;
  const auto begin = [&] {
    if (waiter) return;
    waiter.emplace(*this, side);
    deadline = deadline_after(timeout);
  };
  const auto spin = [&] {
    return spin_for(
        spin_budget(side), settings_.spin, attempt,
        [&](Deadline now) {
          begin();
          return closed() || now >= deadline;
        },
        [this, side] { return watches_lifeline_ && lifeline_ended(side); });
  };
  if (spin()) return;
  begin();
  std::chrono::microseconds nap = kFirstNap;
  bool lifeline_news = false;
  bool look_again = !transport_.facts().events_stay;  // the last look was fruitless
  for (;;) {
    if (closed()) throw_closed(what);
    while (side == Side::kReceive && takes_nap(found_since_last_sleep())) {
      nap_briefly();
      if (attempt()) return;
    }
    {
      const JoinedBarriers barrier;
      transport_.arm(side);
    }
    if (look_again && attempt()) return;
    look_again = true;
    // The lifeline's end would end the sleep, so look for it only after such a sleep or at the
    // deadline.
    const bool late = passed(deadline);
    if (watches_lifeline_ && (lifeline_news || late) && lifeline_ended(side)) {
      if (found_late(attempt)) return;
      if (closed() || !lifeline_ended(side)) continue;
      peer_gone_.store(true, std::memory_order_relaxed);  // for try_receive, which does not look
      throw_gone(what);
    }
    if (late)
      throw Error(ErrorCode::kTimeout,
                  std::string(what) + " timed out after " + std::to_string(timeout.count()) +
                      " ms, peer " + where(),
                  "Raise the option timeout_ms, or see what the peer is waiting for.");
    if (side == Side::kSend && transport_.outlook(side, Look::kBrief).soon) {
      if (spin()) return;
      nap = kFirstNap;
    }
    lifeline_news = sleep(side, deadline, nap);
  }
}

template <typename Try>
void ChannelCore::wait_to_send(const char* what, unsigned context, Try&& try_once) try {
  wait(Side::kSend, what, try_once);
} catch (...) {
  abandon_send(context);
  throw;
}

}  // namespace leat::detail
