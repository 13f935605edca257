#include "leat/wait.h"

#include <algorithm>
#include <string>

#include "base/asymmetric_barrier.h"
#include "socket/any_wait.h"
#include "socket/channel_wait.h"

namespace leat {
namespace detail {

AnyWaiter::End AnyWaiter::wait(const std::function<bool()>& done) {
  if (try_at_once(how_.spin, done)) return End::kDone;
  const auto spin = [&] {
    return spin_for(
        how_.spin, how_.deadline, done, [] { return false; }, [this] { return find_gone(); });
  };
  if (spin()) return End::kDone;
  std::chrono::microseconds nap = kFirstNap;
  for (;;) {
    while (how_.side == Side::kReceive && takes_nap()) {
      nap_briefly();
      if (done()) return End::kDone;
    }
    {
      const JoinedBarriers barrier;
      for (Channel* channel : channels_) {
        ChannelCore& core = ChannelCore::of(*channel);
        core.transport_.arm(how_.side);
        if (how_.room_too) core.arm_for_room();
      }
    }
    if (done()) return End::kDone;
    if (find_gone()) {
      if (done()) return End::kDone;
      if (find_gone()) return End::kGone;
    }
    if (passed(how_.deadline)) return End::kDeadline;
    if (how_.side == Side::kSend && room_soon()) {
      if (spin()) return End::kDone;
      nap = kFirstNap;
    }
    sleep(nap);
  }
}

bool AnyWaiter::find_gone() {
  for (Channel* channel : channels_) {
    const ChannelCore& core = ChannelCore::of(*channel);
    if (!core.watches_lifeline_ || !core.lifeline_ended()) continue;
    gone_ = channel;
    return true;
  }
  return false;
}

bool AnyWaiter::room_soon() const {
  for (Channel* channel : channels_)
    if (ChannelCore::of(*channel).transport_.room_soon()) return true;
  return false;
}

// What counts is what all have found; the first one remembers.
bool AnyWaiter::takes_nap() const {
  Transport::Found found;
  for (Channel* channel : channels_) {
    const Transport::Found one = ChannelCore::of(*channel).found_since_last_sleep();
    found.messages += one.messages;
    found.eighths = std::max(found.eighths, one.eighths);
  }
  return !channels_.empty() && ChannelCore::of(*channels_.front()).takes_nap(found);
}

// What else than its transport's events ends a sleep.
void AnyWaiter::poll_also(Channel* channel) {
  const ChannelCore& core = ChannelCore::of(*channel);
  polled_.push_back({core.closing_.get(), POLLIN, 0});
  if (core.watches_lifeline_) polled_.push_back({core.connection_.stream->fd(), POLLIN, 0});
}

// Without the transports' events, for which nobody has armed.
void AnyWaiter::nap_briefly() {
  polled_.clear();
  for (Channel* channel : channels_) {
    ChannelCore::of(*channel).receive_sleeps_.add(1);
    poll_also(channel);
  }
  if (how_.other_fd >= 0) polled_.push_back({how_.other_fd, POLLIN, 0});
  std::chrono::microseconds nap = ChannelCore::of(*channels_.front()).nap_;
  sleep_on(polled_, Transport::Comes::kSilently, kNoDeadline, nap);
}

void AnyWaiter::sleep(std::chrono::microseconds& nap) {
  polled_.clear();
  // What comes most silently. Who waits for room may also look at the time.
  auto comes = how_.room_too ? Transport::Comes::kMuchWithEvent : Transport::Comes::kWithEvent;
  for (Channel* channel : channels_) {
    ChannelCore& core = ChannelCore::of(*channel);
    if (how_.side == Side::kSend) {
      core.send_sleeps_.add(1);
      comes = std::max(comes, core.transport_.room_comes());
    } else {
      core.receive_sleeps_.add(1);
      comes = std::max(comes, core.messages_come());
    }
    polled_.push_back({core.transport_.event_fd(how_.side), POLLIN, 0});
    if (how_.room_too) {
      polled_.push_back({core.transport_.event_fd(Side::kSend), POLLIN, 0});
      comes = std::max(comes, core.transport_.room_comes());
    }
    poll_also(channel);
  }
  if (how_.other_fd >= 0) polled_.push_back({how_.other_fd, POLLIN, 0});
  sleep_on(polled_, comes, how_.deadline, nap);
}

}  // namespace detail

Channel* wait_any(std::span<Channel* const> channels, WaitFor wait_for, const char* what,
                  const std::function<bool()>& done) {
  if (channels.empty())
    throw Error(ErrorCode::kInvalidArgument,
                std::string(what) + ": there is no channel to wait for");
  const detail::ChannelCore& first = detail::ChannelCore::of(*channels[0]);
  detail::AnyWaiter waiter(channels, {.room_too = wait_for == WaitFor::kRoom,
                                      .spin = first.settings().spin,
                                      .deadline = detail::deadline_after(first.receive_timeout())});
  switch (waiter.wait(done)) {
    case detail::AnyWaiter::End::kDone:
      return nullptr;
    case detail::AnyWaiter::End::kGone:
      return waiter.gone();
    case detail::AnyWaiter::End::kDeadline:
      break;
  }
  throw Error(ErrorCode::kTimeout,
              std::string(what) + " timed out after " +
                  std::to_string(first.receive_timeout().count()) + " ms",
              "Raise the option timeout_ms, or see what the peers are waiting for.");
}

}  // namespace leat
