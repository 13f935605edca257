#include "leat/poller.h"

#include <poll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/asymmetric_barrier.h"
#include "base/epoll.h"
#include "base/system_error.h"
#include "channel/channel_core.h"
#include "channel/channel_wait.h"
#include "channel/listener_core.h"
#include "channel/poller_core.h"
#include "leat/error.h"

namespace leat {
namespace detail {
namespace {

// A hot channel that had nothing in so many rounds, in which others had something, is armed. A look
// costs some 40 ns; to arm it, to be notified and to look at the set cost 2 to 4 us together, so
// when these rounds are over the looks have cost about as much.
constexpr std::uint64_t kTurnsUnarmed = 64;
// So many calls that may not sleep and find nothing count as one such round.
constexpr std::uint64_t kVainCallsPerTurn = 16;
// Every so often a look is at all contexts.
constexpr unsigned kLooksPerThoroughOne = 16;
// While there is other work, the set is looked at after so many times what such a look takes.
constexpr int kSetShare = 16;
constexpr std::chrono::nanoseconds kShortestSetInterval = std::chrono::microseconds(2);
constexpr std::chrono::nanoseconds kLongestSetInterval = std::chrono::microseconds(50);
constexpr std::size_t kMostOfSet = 64;  // events of one look
// To arm so many hot channels takes as long as some naps, and costs their senders a notification
// each. So if that many messages came since the last sleep, naps come first, as those of a single
// receiver of many messages do.
constexpr std::size_t kManyHot = 32;

}  // namespace

// --- wait

std::size_t PollerCore::wait(std::span<Event> events, std::chrono::nanoseconds timeout) {
  check_here("wait");
  if (events.empty())
    throw Error(ErrorCode::kInvalidArgument, "wait: the array has no room for an event",
                "Pass an array of one event at least.");
  ++stats_.waits;
  const Deadline now = Clock::now();
  const bool blocks = timeout != std::chrono::nanoseconds::zero();
  std::size_t found = look_once(events, now);
  if (found == 0) {
    const Deadline deadline = blocks ? deadline_after(timeout) : now;
    if (blocks) found = spin(events, deadline);
    // From fd() on each call that finds nothing leaves everything armed.
    if (found == 0)
      found = passed(deadline) && !hot_event_ ? look_last(events) : sleep(events, deadline);
  }
  show_on_fd();
  stats_.events += found;
  return found;
}

std::size_t PollerCore::look_once(std::span<Event> events, Deadline now) {
  if (!drowsy_.empty() && now >= nap_ends_) look_at_drowsy();
  const bool due = now >= next_set_look_;
  std::size_t found = 0;
  const bool set_first = due && std::exchange(set_comes_first_, false);
  if (set_first) found = look_at_set(events, 0);
  found += look_at_hot(events.subspan(found));
  // Without any find the caller goes on, and comes to the set by itself.
  if (!due || set_first || found == 0) return found;
  if (found == events.size())
    set_comes_first_ = true;
  else
    found += look_at_set(events.subspan(found), 0);
  return found;
}

// Of a call that may not sleep.
std::size_t PollerCore::look_last(std::span<Event> events) {
  std::size_t found = look_at_set(events, 0);
  found += look_at_hot(events.subspan(found));
  // Else a caller that never blocks would look at idle channels for ever.
  if (found == 0 && ++vain_calls_ % kVainCallsPerTurn == 0) ++turns_;
  return found;
}

// One round at most, from where the last one stopped.
std::size_t PollerCore::look_at_hot(std::span<Event> events) {
  std::size_t found = 0;
  for (std::size_t left = hot_.size(); left > 0 && found < events.size(); --left) {
    if (next_ >= hot_.size()) next_ = 0;
    Entry& entry = *hot_[next_];
    const bool thorough = ++entry.looks % kLooksPerThoroughOne == 0;
    const Events ready = look(entry, thorough ? Look::kThorough : Look::kBrief);
    if (ready != Events::kNone) {
      entry.turn = turns_;
      events[found++] = report(entry, ready);
    } else if (!has(entry.wanted, Events::kReadable | Events::kRoom)) {
      cool(entry);
    } else if (turns_ - entry.turn > kTurnsUnarmed) {
      idle_.push_back(&entry);
    }
    if (entry.is_hot()) ++next_;  // else another one has its place
  }
  if (found != 0) ++turns_;
  found_since_sleep_ += found;
  if (!idle_.empty()) arm_all(idle_);
  idle_.clear();
  return found;
}

Event PollerCore::report(Entry& entry, Events ready) {
  if (has(entry.wanted, Events::kOneShot)) {
    entry.wanted = Events::kNone;
    if (entry.channel != nullptr) cool(entry);
  }
  return {entry.token, ready, entry.channel != nullptr ? entry.channel->watched_.context : 0};
}

// Those in which nothing is become cold; the others stay hot.
void PollerCore::arm_all(const std::vector<Entry*>& entries) {
  {
    const JoinedBarriers barrier;
    for (Entry* entry : entries) arm(*entry);
  }
  for (Entry* entry : entries) {
    ++stats_.arms;
    entry->turn = turns_;
    if (look(*entry, Look::kThorough) == Events::kNone) leave_armed(*entry);
  }
}

// --- the kernel's set

// Stores what is ready of listeners and other descriptors, and heats channels.
std::size_t PollerCore::look_at_set(std::span<Event> events, int timeout_ms) {
  std::array<epoll_event, kMostOfSet> got;
  const std::size_t most = std::min(got.size(), events.size());
  const Deadline before = Clock::now();
  ++(timeout_ms == 0 ? stats_.set_looks : stats_.sleeps);
  const int count = epoll_wait(set_.get(), got.data(), static_cast<int>(most), timeout_ms);
  if (count < 0 && errno != EINTR) throw system_error("epoll_wait", errno);
  const Deadline after = Clock::now();
  if (timeout_ms == 0)
    set_interval_ = std::clamp<std::chrono::nanoseconds>((after - before) * kSetShare,
                                                         kShortestSetInterval, kLongestSetInterval);
  next_set_look_ = after + set_interval_;
  if (count == static_cast<int>(most)) next_set_look_ = after;  // there may be more

  std::size_t found = 0;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t data = got[static_cast<std::size_t>(i)].data.u64;
    const unsigned what = got[static_cast<std::size_t>(i)].events;
    const auto source = static_cast<Source>(data >> 56);
    const std::size_t index = data & 0xffff'ffff;
    if (source == Source::kOwn || index >= entries_.size()) continue;
    Entry* const entry = entries_[index].get();
    // Left behind by a descriptor that was duplicated, or closed without remove().
    if (entry == nullptr || entry->generation != (data >> 32 & 0xff'ffff)) continue;
    ++stats_.notices;
    if (source == Source::kPlain) {
      constexpr unsigned kBad = EPOLLERR | EPOLLHUP;
      Events ready = Events::kNone;
      if ((what & (EPOLLIN | kBad)) != 0) ready |= entry->wanted & Events::kReadable;
      if ((what & (EPOLLOUT | kBad)) != 0) ready |= entry->wanted & Events::kRoom;
      if (ready == Events::kNone) continue;
      events[found++] = report(*entry, ready);
      next_set_look_ = after;  // it is level-triggered
      continue;
    }
    if (source == Source::kLifeline) entry->lifeline_news = true;
    let_retry(*entry);
    heat(*entry);
  }
  return found;
}

// --- what may come without an event

void PollerCore::look_at_drowsy() {
  std::chrono::microseconds shortest = kLongestNap;
  for (std::size_t i = drowsy_.size(); i-- > 0;) {
    Entry& entry = *drowsy_[i];
    ++entry.naps;
    let_retry(entry);
    if (look(entry, Look::kThorough) != Events::kNone) heat(entry);
    // A hot one comes here again when it is armed, or finds no room.
    if (!entry.is_hot() && entry.comes != Outlook::Comes::kWithEvent) {
      shortest = std::min(shortest, nap_of(entry));
      continue;
    }
    entry.drowsy = false;
    drowsy_[i] = drowsy_.back();
    drowsy_.pop_back();
  }
  nap_ = shortest;
  nap_ends_ = deadline_after(nap_);
}

bool PollerCore::takes_brief_nap() {
  const bool many = std::exchange(found_since_sleep_, 0) >= kMessagesPerNap;
  if (hot_.size() < kManyHot) return false;
  brief_nap_ = many && brief_naps_left_ != 0 ? std::min(brief_nap_ * 2, kLongestBriefNap)
                                             : std::chrono::microseconds(kBriefNap);
  if (many) brief_naps_left_ = kNapsWithoutMany;
  return brief_naps_left_ != 0 && brief_naps_left_-- != 0;
}

// With the hot channels unarmed.
std::size_t PollerCore::nap_briefly(std::span<Event> events) {
  pollfd set{set_.get(), POLLIN, 0};
  std::chrono::microseconds length = brief_nap_;
  ++stats_.sleeps;
  sleep_on({&set, 1}, Outlook::Comes::kSilently, kNoDeadline, length);
  const std::size_t found = set.revents != 0 ? look_at_set(events, 0) : 0;
  return found + look_at_hot(events.subspan(found));
}

std::size_t PollerCore::nap(std::span<Event> events) {
  auto comes = Outlook::Comes::kMuchWithEvent;
  for (const Entry* entry : drowsy_) comes = std::max(comes, entry->comes);
  pollfd set{set_.get(), POLLIN, 0};
  std::chrono::microseconds length = nap_;
  ++stats_.sleeps;
  sleep_on({&set, 1}, comes, kNoDeadline, length);
  const std::size_t found = set.revents != 0 ? look_at_set(events, 0) : 0;
  look_at_drowsy();
  return found;
}

// --- waiting

std::size_t PollerCore::spin(std::span<Event> events, Deadline deadline) {
  std::chrono::microseconds most{0};
  for (const Entry* entry : hot_) {
    const auto one = entry->channel->settings().spin;
    if (one.count() < 0 || (most.count() >= 0 && one > most)) most = one;
  }
  std::size_t found = 0;
  spin_for(
      spin_budget_, most, [&] { return (found = look_at_hot(events)) != 0; },
      [&](Deadline now) {
        if (!drowsy_.empty() && now >= nap_ends_) look_at_drowsy();
        if (now >= next_set_look_) found = look_at_set(events, 0);
        return found != 0 || now >= deadline;
      },
      [] { return false; });
  return found;
}

std::size_t PollerCore::sleep(std::span<Event> events, Deadline deadline) {
  while (!passed(deadline) && takes_brief_nap())
    if (const std::size_t found = nap_briefly(events); found != 0) return found;
  for (;;) {
    idle_ = hot_;
    arm_all(idle_);
    idle_.clear();
    std::size_t found = hot_.empty() ? 0 : look_at_hot(events);
    if (found != 0) return found;
    show_on_fd();  // or its event would end the sleep
    if (passed(deadline)) return look_last(events);
    found = drowsy_.empty() ? look_at_set(events, poll_timeout_ms(deadline)) : nap(events);
    found += look_at_hot(events.subspan(found));
    if (found != 0) return found;
  }
}

// --- fd

int PollerCore::fd() {
  check_here("fd");
  if (!hot_event_) {
    Fd event = new_event();
    Fd timer(check(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), "timerfd_create"));
    epoll_add(set_, event.get());  // the data 0 is Source::kOwn
    epoll_add(set_, timer.get());
    hot_event_ = std::move(event);
    nap_timer_ = std::move(timer);
    show_on_fd();
  }
  return set_.get();
}

void PollerCore::show_on_fd() {
  if (!hot_event_) return;
  const bool hot = !hot_.empty();
  if (std::exchange(shown_hot_, hot) != hot) {
    eventfd_t events = 0;
    if (hot)
      eventfd_write(hot_event_.get(), 1);
    else
      eventfd_read(hot_event_.get(), &events);
  }
  const bool naps = !hot && !drowsy_.empty();
  if (!naps && !shown_nap_) return;
  shown_nap_ = naps;
  itimerspec time{};  // zero: none. Setting it takes an expiry back.
  if (naps) {
    const auto left =
        std::max<std::chrono::nanoseconds>(nap_ends_ - Clock::now(), std::chrono::microseconds(1));
    time.it_value.tv_nsec = left.count();
  }
  timerfd_settime(nap_timer_.get(), 0, &time, nullptr);
}

PollerStats PollerCore::stats() const { return stats_; }

}  // namespace detail

// --- Poller

Poller::Poller() : core_(std::make_unique<detail::PollerCore>()) {}
Poller::Poller(Poller&&) noexcept = default;
Poller& Poller::operator=(Poller&&) noexcept = default;
Poller::~Poller() = default;

void Poller::add(Channel& channel, Events events, std::uint64_t token) {
  core_->add(detail::ChannelCore::of(channel), events, token);
}
void Poller::add(Listener& listener, std::uint64_t token) { core_->add(*listener.core_, token); }
void Poller::add(int descriptor, Events events, std::uint64_t token) {
  core_->add(descriptor, events, token);
}

void Poller::modify(Channel& channel, Events events) {
  core_->modify(detail::ChannelCore::of(channel), events);
}
void Poller::modify(int descriptor, Events events) { core_->modify(descriptor, events); }

void Poller::remove(Channel& channel) { core_->remove(detail::ChannelCore::of(channel)); }
void Poller::remove(Listener& listener) { core_->remove(*listener.core_); }
void Poller::remove(int descriptor) { core_->remove(descriptor); }

std::size_t Poller::wait(std::span<Event> events, std::chrono::nanoseconds timeout) {
  return core_->wait(events, timeout);
}
int Poller::fd() { return core_->fd(); }
PollerStats Poller::stats() const { return core_->stats(); }

}  // namespace leat
