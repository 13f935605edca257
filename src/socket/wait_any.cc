#include "leat/wait.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "base/system_error.h"
#include "socket/channel_wait.h"

namespace leat::detail {

class AnyWaiter {
 public:
  AnyWaiter(std::span<Channel* const> channels, WaitFor wait_for)
      : channels_(channels), wait_for_(wait_for), settings_(core(0).settings_) {}

  Channel* wait(const char* what, const std::function<bool()>& done) {
    if (settings_.spin != std::chrono::microseconds::zero()) {
      for (int i = 0; i < kTriesBeforeClock; ++i)
        if (done()) return nullptr;
    }
    const Deadline deadline = deadline_after(core(0).receive_timeout_);
    if (spin(done, deadline)) return nullptr;
    auto nap = std::chrono::duration_cast<std::chrono::microseconds>(kFirstNap);
    for (;;) {
      for (std::size_t i = 0; i < channels_.size(); ++i) core(i).transport_.arm(Side::kReceive);
      if (done()) return nullptr;
      if (Channel* gone = gone_channel()) return done() ? nullptr : gone;
      if (passed(deadline))
        throw Error(ErrorCode::kTimeout,
                    std::string(what) + " timed out after " +
                        std::to_string(core(0).receive_timeout_.count()) + " ms",
                    "Raise the option timeout_ms, or see what the peers are waiting for.");
      sleep(deadline, nap);
    }
  }

 private:
  ChannelCore& core(std::size_t i) const { return *channels_[i]->core_; }

  Channel* gone_channel() const {
    for (std::size_t i = 0; i < channels_.size(); ++i)
      if (core(i).watches_lifeline_ && core(i).lifeline_ended()) return channels_[i];
    return nullptr;
  }

  bool spin(const std::function<bool()>& done, Deadline deadline) const {
    if (settings_.spin == std::chrono::microseconds::zero()) return false;
    const bool forever = settings_.spin < std::chrono::microseconds::zero();
    const Deadline start = Clock::now();
    const Deadline until = forever ? deadline : std::min(deadline, start + settings_.spin);
    Deadline next_look = start + kLifelineInterval;
    for (;;) {
      for (int i = 0; i < kTriesPerClock; ++i) {
        if (done()) return true;
        pause();
      }
      const Deadline now = Clock::now();
      if (now >= until) return false;
      if (forever && now >= next_look) {
        if (gone_channel() != nullptr) return false;
        next_look = now + kLifelineInterval;
      }
    }
  }

  void sleep(Deadline deadline, std::chrono::microseconds& nap) {
    polled_.clear();
    bool naps = wait_for_ == WaitFor::kRoom;
    for (std::size_t i = 0; i < channels_.size(); ++i) {
      core(i).receive_sleeps_.add(1);
      naps = naps || core(i).transport_.receiving_waits_for_room();
      polled_.push_back({core(i).transport_.event_fd(Side::kReceive), POLLIN, 0});
      if (core(i).watches_lifeline_)
        polled_.push_back({core(i).connection_.stream->fd(), POLLIN, 0});
    }
    int ready = 0;
    if (naps) {
      const timespec time{0, std::chrono::nanoseconds(nap).count()};
      ready = ppoll(polled_.data(), polled_.size(), &time, nullptr);
      nap = std::min<std::chrono::microseconds>(nap * 2, kLongestNap);
    } else {
      ready = poll(polled_.data(), polled_.size(), poll_timeout_ms(deadline));
    }
    if (ready < 0 && errno != EINTR) throw system_error("poll", errno);
  }

  const std::span<Channel* const> channels_;
  const WaitFor wait_for_;
  const Settings& settings_;
  std::vector<pollfd> polled_;
};

}  // namespace leat::detail

namespace leat {

Channel* wait_any(std::span<Channel* const> channels, WaitFor wait_for, const char* what,
                  const std::function<bool()>& done) {
  if (channels.empty())
    throw Error(ErrorCode::kInvalidArgument,
                std::string(what) + ": there is no channel to wait for");
  return detail::AnyWaiter(channels, wait_for).wait(what, done);
}

}  // namespace leat
