#include "leat/wait.h"

#include <algorithm>
#include <string>

#include "base/asymmetric_barrier.h"
#include "channel/any_wait.h"
#include "channel/channel_wait.h"

namespace leat {
namespace detail {
namespace {

// Messages that are bytes of a stream, which a look at one context reads for all: those of another
// one, at which a waiter had looked before, are announced no more. (A device's event, once armed,
// stays until the waiter arms the next one.)
bool has_unannounced(const Transport& transport) {
  return transport.facts().stream == StreamUse::kMessages &&
         transport.outlook(Side::kReceive, Look::kThorough).soon;
}

}  // namespace

// Exists while the thread sleeps, and so waits on those sides of the channels; between sleeps
// `done` uses them.
class AnyWaiter::Sleep {
 public:
  explicit Sleep(const AnyWaiter& waiter) : waiter_(waiter) {}
  ~Sleep() {
    for (; begun_ > 0; --begun_) core(begun_ - 1).waiting_sides_.end(side(begun_ - 1));
  }
  Sleep(const Sleep&) = delete;
  Sleep& operator=(const Sleep&) = delete;

  void begin() {
    const std::size_t sides = waiter_.channels_.size() * (waiter_.how_.room_too ? 2 : 1);
    for (; begun_ < sides; ++begun_) core(begun_).begin_wait(side(begun_));
  }

 private:
  // First one side of every channel, then the other side of each, if that is waited for too.
  ChannelCore& core(std::size_t i) const {
    return ChannelCore::of(*waiter_.channels_[i % waiter_.channels_.size()]);
  }
  Side side(std::size_t i) const {
    return i < waiter_.channels_.size() ? waiter_.how_.side : Side::kSend;
  }

  const AnyWaiter& waiter_;
  std::size_t begun_ = 0;
};

AnyWaiter::End AnyWaiter::wait(const std::function<bool()>& done) {
  const auto spin = [&] {
    return spin_for(
        how_.budget, how_.spin, done, [&](Deadline now) { return now >= how_.deadline; },
        [this] { return find_gone(); });
  };
  if (spin()) return End::kDone;
  std::chrono::microseconds nap = kFirstNap;
  bool lifeline_news = false;
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
    if (any_unannounced() && done()) return End::kDone;
    // The end of a lifeline would end the sleep, so look for it only after such a sleep or at the
    // deadline.
    const bool late = passed(how_.deadline);
    if ((lifeline_news || late) && find_gone()) {
      if (found_late(done)) return End::kDone;
      if (find_gone()) return End::kGone;
    }
    if (late) return End::kDeadline;
    if (how_.side == Side::kSend && room_soon()) {
      if (spin()) return End::kDone;
      nap = kFirstNap;
    }
    lifeline_news = sleep(nap);
  }
}

bool AnyWaiter::find_gone() {
  for (Channel* channel : channels_) {
    const ChannelCore& core = ChannelCore::of(*channel);
    if (!core.watches_lifeline_ || !core.lifeline_ended(how_.side)) continue;
    gone_ = channel;
    return true;
  }
  return false;
}

// Whether messages wait at this side of which no event tells.
bool AnyWaiter::any_unannounced() const {
  return how_.side == Side::kReceive && std::ranges::any_of(channels_, [](Channel* channel) {
           return has_unannounced(ChannelCore::of(*channel).transport_);
         });
}

bool AnyWaiter::room_soon() const {
  for (Channel* channel : channels_)
    if (ChannelCore::of(*channel).transport_.outlook(Side::kSend, Look::kBrief).soon) return true;
  return false;
}

// The sum over all channels counts; the first channel keeps it.
bool AnyWaiter::takes_nap() const {
  Outlook::Found found;
  for (Channel* channel : channels_) {
    const Outlook::Found one = ChannelCore::of(*channel).found_since_last_sleep();
    found.messages += one.messages;
    found.eighths = std::max(found.eighths, one.eighths);
  }
  return !channels_.empty() && ChannelCore::of(*channels_.front()).takes_nap(found);
}

// Adds what ends a sleep besides the transport's events.
void AnyWaiter::poll_also(Channel* channel) {
  const ChannelCore& core = ChannelCore::of(*channel);
  polled_.push_back({core.closing_.get(), POLLIN, 0});
  if (!core.watches_lifeline_) return;
  lifelines_.push_back(polled_.size());
  polled_.push_back({core.lifeline_fd(how_.side), POLLIN, 0});
}

// Without the transports' events, which are not armed.
void AnyWaiter::nap_briefly() {
  polled_.clear();
  lifelines_.clear();
  for (Channel* channel : channels_) {
    ChannelCore::of(*channel).receive_sleeps_.add(1);
    poll_also(channel);
  }
  if (how_.other_fd >= 0) polled_.push_back({how_.other_fd, POLLIN, 0});
  std::chrono::microseconds nap = ChannelCore::of(*channels_.front()).nap_;
  sleep_on(polled_, Outlook::Comes::kSilently, kNoDeadline, nap);
}

bool AnyWaiter::sleep(std::chrono::microseconds& nap) {
  Sleep marked(*this);
  marked.begin();
  polled_.clear();
  lifelines_.clear();
  // The most silent kind of arrival decides. A waiter for room may also look at the time.
  Outlook::Comes comes =
      how_.room_too ? Outlook::Comes::kMuchWithEvent : Outlook::Comes::kWithEvent;
  for (Channel* channel : channels_) {
    ChannelCore& core = ChannelCore::of(*channel);
    (how_.side == Side::kSend ? core.send_sleeps_ : core.receive_sleeps_).add(1);
    Outlook outlook = core.transport_.outlook(how_.side, Look::kBrief);
    polled_.push_back({core.transport_.event_fd(how_.side), POLLIN, 0});
    if (how_.room_too) {
      polled_.push_back({core.transport_.event_fd(Side::kSend), POLLIN, 0});
      const Outlook of_room = core.transport_.outlook(Side::kSend, Look::kBrief);
      outlook.comes = std::max(outlook.comes, of_room.comes);
      outlook.stream_events |= of_room.stream_events;
    }
    // The last look found them, or nobody looks at their context.
    if (how_.side == Side::kReceive && has_unannounced(core.transport_))
      comes = Outlook::Comes::kSilently;
    comes = std::max(comes, outlook.comes);
    if (!core.watches_lifeline_)
      polled_.push_back({core.connection_.stream->fd(), outlook.stream_events, 0});
    poll_also(channel);
  }
  if (how_.other_fd >= 0) polled_.push_back({how_.other_fd, POLLIN, 0});
  sleep_on(polled_, comes, how_.deadline, nap);
  return std::ranges::any_of(lifelines_, [this](std::size_t i) { return polled_[i].revents != 0; });
}

}  // namespace detail

Channel* wait_any(std::span<Channel* const> channels, WaitFor wait_for, const char* what,
                  const std::function<bool()>& done, int other_fd) {
  if (channels.empty())
    throw Error(ErrorCode::kInvalidArgument,
                std::string(what) + ": there is no channel to wait for");
  detail::ChannelCore& first = detail::ChannelCore::of(*channels[0]);
  detail::AnyWaiter waiter(channels, {.room_too = wait_for == WaitFor::kRoom,
                                      .other_fd = other_fd,
                                      .budget = first.spin_budget(detail::Side::kReceive),
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
