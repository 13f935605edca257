// When a wait for which spinning has not paid tries whether it pays now, and for how long.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace leat::detail {

// The trials of one thread. Waits that would otherwise sleep at once make brief ones, waits that
// have got past their first tries make long ones. After a trial in vain, no other of its kind
// follows before a multiple of its time has passed; the multiple grows while long ones are in vain.
//
// If peers both sleep, the one that tries long must wait for the other to wake up and answer, and
// the other must then try for as long as its next answer takes. How long these are is not known,
// and a sleeper may need longer than the setting. So each trial takes twice as long as the one
// before it, from a microsecond to eight, and from the setting to four times as long; then they
// begin again.
class SpinTrials {
 public:
  using Nanoseconds = std::int64_t;
  enum class Kind { kNone, kBrief, kLong };
  // What was wasted is paid back by this multiple; by four times that where kManyInVain long trials
  // were in vain, and twice that on the way.
  static constexpr Nanoseconds kPayBack = 32;
  // A wait that may take no longer makes its first tries only.
  static constexpr Nanoseconds kFirstTries = 16;

  // A wait begins at `now` for which spinning does not pay. Returns how long it may try, which is
  // at most `most`; 0: not at all.
  Nanoseconds begin_wait(Nanoseconds now, Nanoseconds most) noexcept {
    round_ = now - std::exchange(last_wait_, now);
    if (now < next_brief_) return 0;
    return brief_doublings_ == 0 ? kFirstTries : std::min(kBrief << brief_doublings_, most);
  }

  bool long_one_is_due(Nanoseconds now) const noexcept { return now >= next_long_; }
  // How long it takes, where the setting is `most`. Where messages come close after one another
  // although waits sleep, a sleeper wakes up sooner, too.
  Nanoseconds long_one(Nanoseconds most) const noexcept {
    Nanoseconds time = most;
    for (int i = 0; i < long_doublings_ && time < 2 * round_; ++i) time *= 2;
    return time;
  }

  void won() noexcept { in_vain_ = 0; }
  // The wait sleeps after all, after so much time.
  void lost(Kind kind, Nanoseconds now, Nanoseconds wasted) noexcept {
    const Nanoseconds pays_at = now + (kPayBack << in_vain_ / (kManyInVain / 2)) * wasted;
    if (kind == Kind::kLong) {
      next_long_ = pays_at;
      in_vain_ = std::min(in_vain_ + 1, kManyInVain);
      long_doublings_ = (long_doublings_ + 1) % (kLongDoublings + 1);
    } else if (kind == Kind::kBrief) {
      next_brief_ = pays_at;
      brief_doublings_ = (brief_doublings_ + 1) % (kBriefDoublings + 1);
    }
  }

 private:
  static constexpr Nanoseconds kBrief = 1'000;
  static constexpr int kBriefDoublings = 3, kLongDoublings = 2;
  static constexpr int kManyInVain = 16;

  Nanoseconds next_brief_ = 0, next_long_ = 0;  // points of time
  int brief_doublings_ = 0, long_doublings_ = 0;
  int in_vain_ = 0;            // long ones since the last success
  Nanoseconds last_wait_ = 0;  // when the last one began for which spinning does not pay
  Nanoseconds round_ = 0;      // the time from the one before it
};

}  // namespace leat::detail
