// How a channel waits, in full, because each wait is compiled into the loop that spins.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>

#include "leat/error.h"
#include "socket/channel_core.h"

namespace leat::detail {

// Tries that follow each other at once before the first look at the clock: a microsecond.
inline constexpr int kTriesBeforeClock = 50;
// Between two looks at the clock while spinning.
inline constexpr int kTriesPerClock = 32;
// While spinning without end: between two looks at the lifeline, each a system call.
inline constexpr auto kLifelineInterval = std::chrono::milliseconds(1);
// Room that comes without an event is looked for after naps that grow from the first to the second.
inline constexpr auto kFirstNap = std::chrono::microseconds(50);
inline constexpr auto kLongestNap = std::chrono::milliseconds(1);

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Another thread's close() looks to the transport like the peer's death.
template <typename Try>
bool ChannelCore::unless_closed(const char* what, Try&& try_once) {
  try {
    return try_once();
  } catch (const Error&) {
    if (closed()) throw_closed(what);
    throw;
  }
}

template <typename Try>
void ChannelCore::wait(Side side, const char* what, Try&& try_once) {
  const auto timeout = side == Side::kSend ? send_timeout_ : receive_timeout_;
  const auto attempt = [&] { return unless_closed(what, try_once); };
  // The first tries without a look at the clock, which costs as much as a message.
  if (settings_.spin != std::chrono::microseconds::zero()) {
    for (int i = 0; i < kTriesBeforeClock; ++i)
      if (attempt()) return;
  }
  const Deadline deadline = deadline_after(timeout);
  if (spin(side, attempt, deadline)) return;
  auto nap = std::chrono::duration_cast<std::chrono::microseconds>(kFirstNap);
  for (;;) {
    if (closed()) throw_closed(what);
    transport_.arm(side);
    if (attempt()) return;
    if (watches_lifeline_ && lifeline_ended()) {
      if (attempt()) return;  // what came before the end still counts
      if (closed()) continue;
      throw Error(ErrorCode::kPeerDied, std::string(what) + ": " + where() + " went away");
    }
    if (passed(deadline))
      throw Error(ErrorCode::kTimeout,
                  std::string(what) + " timed out after " + std::to_string(timeout.count()) +
                      " ms, peer " + where(),
                  "Raise the option timeout_ms, or see what the peer is waiting for.");
    if (side == Side::kSend && transport_.took_part()) {
      if (spin(side, attempt, deadline)) return;
      nap = std::chrono::duration_cast<std::chrono::microseconds>(kFirstNap);
    }
    sleep(side, deadline, nap);
  }
}

template <typename Try>
bool ChannelCore::spin(Side side, Try&& try_once, Deadline deadline) {
  if (settings_.spin == std::chrono::microseconds::zero()) return false;
  const bool forever = settings_.spin < std::chrono::microseconds::zero();
  SpinHabit& habit = spin_habits_[side == Side::kSend ? 0 : 1];
  if (!forever && !habit.worth_it()) return false;
  const Deadline start = Clock::now();
  const Deadline until = forever ? deadline : std::min(deadline, start + settings_.spin);
  Deadline next_look = start + kLifelineInterval;
  for (;;) {
    for (int i = 0; i < kTriesPerClock; ++i) {
      if (try_once()) {
        habit.succeeded();
        return true;
      }
      pause();
    }
    const Deadline now = Clock::now();
    if (now >= until || closed()) {
      habit.failed();
      return false;
    }
    if (forever && watches_lifeline_ && now >= next_look) {
      if (lifeline_ended()) return false;
      next_look = now + kLifelineInterval;
    }
  }
}

}  // namespace leat::detail
