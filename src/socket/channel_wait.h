// How a channel waits, in full, because each wait is compiled into the loop that spins.
#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <string>

#include "base/asymmetric_barrier.h"
#include "base/pause.h"
#include "leat/error.h"
#include "socket/channel_core.h"

namespace leat::detail {

// Tries that follow each other at once before the first look at the clock: a microsecond.
inline constexpr int kTriesBeforeClock = 50;
// Between two looks at the clock while spinning.
inline constexpr int kTriesPerClock = 32;
// While spinning without end, and for who polls: between two looks at the lifeline, each a system
// call.
inline constexpr auto kLifelineInterval = std::chrono::milliseconds(1);
// Room that comes without an event is looked for after naps that grow from the first to the second.
inline constexpr auto kFirstNap = std::chrono::microseconds(20);
inline constexpr auto kLongestNap = std::chrono::milliseconds(1);

// A receiver that found so many messages since it slept last takes so many naps, instead of having
// an event made for the next message: it then finds many at a time, as does the sender room. While
// naps find as many there are more of them, and longer ones while what is found takes little of the
// room that there is for it.
inline constexpr std::uint64_t kMessagesPerNap = 64;
inline constexpr unsigned kNapsWithoutMany = 3;
inline constexpr auto kBriefNap = kFirstNap;
inline constexpr auto kLongestBriefNap = std::chrono::microseconds(80);

// Tries without a look at the clock, which costs as much as a message; not where waits are to sleep
// at once.
template <typename Try>
bool try_at_once(std::chrono::microseconds spin, Try&& try_once) {
  if (spin == std::chrono::microseconds::zero()) return false;
  for (int i = 0; i < kTriesBeforeClock; ++i)
    if (try_once()) return true;
  return false;
}

// Tries for the time `spin`, a negative one meaning without end, but not past the deadline. Ends
// also when `stop`, asked at each look at the clock, says so, or `gone`, a system call and
// therefore asked rarely, and only while spinning without end.
template <typename Try, typename Stop, typename Gone>
bool spin_for(std::chrono::microseconds spin, Deadline deadline, Try&& try_once, Stop&& stop,
              Gone&& gone) {
  if (spin == std::chrono::microseconds::zero()) return false;
  const bool forever = spin < std::chrono::microseconds::zero();
  const Deadline start = Clock::now();
  const Deadline until = forever ? deadline : std::min(deadline, start + spin);
  Deadline next_look = start + kLifelineInterval;
  for (;;) {
    for (int i = 0; i < kTriesPerClock; ++i) {
      if (try_once()) return true;
      pause();
    }
    const Deadline now = Clock::now();
    if (now >= until || stop()) return false;
    if (forever && now >= next_look) {
      if (gone()) return false;
      next_look = now + kLifelineInterval;
    }
  }
}

// Sleeps until one of them is ready, or the deadline. Where not all gives an event: for kLongestNap
// at the longest; where nothing does: for `nap`, which grows.
void sleep_on(std::span<pollfd> fds, Transport::Comes comes, Deadline deadline,
              std::chrono::microseconds& nap);

// Another thread's close() looks to the transport like the peer's death, but is told as kClosed.
template <typename Call>
auto ChannelCore::ask(const char* what, Call&& call) const {
  try {
    return call();
  } catch (const Error& error) {
    rethrow(what, error);
  }
}

template <typename Try>
void ChannelCore::wait(Side side, const char* what, Try&& try_once) {
  const auto timeout = side == Side::kSend ? send_timeout_ : receive_timeout_;
  const auto attempt = [&] { return ask(what, try_once); };
  if (try_at_once(settings_.spin, attempt)) return;
  const Deadline deadline = deadline_after(timeout);
  const auto spin = [&] {
    return spin_for(
        settings_.spin, deadline, attempt, [this] { return closed(); },
        [this] { return watches_lifeline_ && lifeline_ended(); });
  };
  if (spin()) return;
  std::chrono::microseconds nap = kFirstNap;
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
    if (attempt()) return;
    if (watches_lifeline_ && lifeline_ended()) {
      if (attempt()) return;  // what came before the end still counts
      if (closed() || !lifeline_ended()) continue;
      peer_gone_.store(true, std::memory_order_relaxed);  // for try_receive, which does not look
      throw_gone(what);
    }
    if (passed(deadline))
      throw Error(ErrorCode::kTimeout,
                  std::string(what) + " timed out after " + std::to_string(timeout.count()) +
                      " ms, peer " + where(),
                  "Raise the option timeout_ms, or see what the peer is waiting for.");
    if (side == Side::kSend && transport_.room_soon()) {
      if (spin()) return;
      nap = kFirstNap;
    }
    sleep(side, deadline, nap);
  }
}

}  // namespace leat::detail
