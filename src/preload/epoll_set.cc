#include "preload/epoll_set.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#include "preload/real.h"
#include "preload/waiting.h"

namespace leat::preload {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr std::uint32_t kAlways = EPOLLERR | EPOLLHUP;
// An item that wants none of these hears of no bytes that arrive.
constexpr std::uint32_t kArrival = EPOLLIN | EPOLLRDNORM | EPOLLRDBAND | EPOLLPRI;
// How long what is found without the kernel may hide what only that knows.
constexpr auto kWithoutKernel = std::chrono::microseconds(20);
// How many wakings by the bell pass until its rings are taken off the kernel's socket. The kernel
// acknowledges small segments when they are read, else after 40 ms, and sends no more than 10 that
// are not acknowledged (RFC 6928): a ring beyond them comes some 10 ms late.
constexpr unsigned kWakesPerDrain = 4;

// As the kernel has it.
bool is_readable(int fd) {
  pollfd answer{.fd = fd, .events = POLLIN};
  return real().poll(&answer, 1, 0) > 0;
}

// What a signal handler gets that has interrupted this thread in the midst of the same set.
int interrupted() {
  errno = EINTR;
  return -1;
}

}  // namespace

std::uint32_t EpollSet::take_ready(Item& item, bool consume) {
  if (item.disabled) return 0;
  if (item.object.is(Kind::kEpoll)) {
    const bool inside = item.object->set->ready();
    if (inside && consume && (item.events & EPOLLONESHOT) != 0) item.disabled = true;
    return inside ? (item.events & EPOLLIN) : 0;
  }
  if (!item.object.is(Kind::kConnection)) return 0;
  Connection& connection = item.object->connection;
  const std::uint32_t mask = connection.poll_mask(item.alive);
  const std::uint64_t arrivals = connection.arrival_mark();
  const std::uint32_t state = connection.state_mark();
  const std::uint32_t full = connection.full_mark();
  const std::uint32_t ready = mask & ((item.events & ~kFlags) | kAlways);
  if (ready == 0) {
    item.reported = 0;
    return 0;
  }
  if ((item.events & EPOLLET) != 0) {
    const bool edge = (ready & ~item.reported) != 0 || state != item.seen_state ||
                      (arrivals != item.seen_arrivals && (item.events & kArrival) != 0) ||
                      (full != item.seen_full && (ready & EPOLLOUT) != 0);
    if (!edge) return 0;
  }
  // The program may have closed it out of our sight: then it must not hear of it any more.
  if (!is_current(item.alive, *item.object)) [[unlikely]] {
    forget_lost(item.alive, *item.object);
    return 0;
  }
  if (consume) {
    item.idle = 0;
    item.reported = ready;
    item.seen_arrivals = arrivals;
    item.seen_state = state;
    item.seen_full = full;
    if ((item.events & EPOLLONESHOT) != 0) item.disabled = true;
  }
  return ready;
}

int EpollSet::collect(epoll_event* events, int most) {
  looked_at_ = hot_.size();
  int count = 0;
  while (count < most && !kept_.empty()) {
    events[count++] = kept_.back().event;
    kept_.pop_back();
  }
  const std::size_t items = hot_.size();
  for (std::size_t i = 0; i < items && count < most; ++i) {
    Item& item = *hot_[(next_hot_ + i) % items];
    const std::uint32_t ready = take_ready(item, true);
    if (ready == 0) continue;
    events[count].events = ready;
    events[count++].data = item.data;
  }
  if (items != 0) next_hot_ = (next_hot_ + 1) % items;
  return count;
}

// As collect(), but if that was done already only for those that became hot since.
int EpollSet::collect_new(epoll_event* events, int most, bool collected) {
  if (!collected) return collect(events, most);
  int count = 0;
  for (std::size_t i = looked_at_; i < hot_.size() && count < most; ++i) {
    Item& item = *hot_[i];
    const std::uint32_t ready = take_ready(item, true);
    if (ready == 0) continue;
    events[count].events = ready;
    events[count++].data = item.data;
  }
  return count;
}

// What the kernel says of something that is not carried. If it comes to be, later, then the program
// has heard of this already.
void EpollSet::pass(Item& item, std::uint32_t got, epoll_event& to) {
  to.events = got;
  to.data = item.data;
  if ((item.events & EPOLLONESHOT) != 0) item.disabled = true;
  if ((got & (EPOLLHUP | EPOLLERR)) != 0) return;  // of a socket that is not connected yet
  item.reported = got;
  item.seen_arrivals = 0;
  item.seen_state = 0;
  item.seen_full = 0;
}

// The bell of a connection. True if there is urgent data, of which the kernel alone knows.
bool EpollSet::ring(Item& item, std::uint32_t got) {
  Connection& connection = item.object->connection;
  if ((got & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0 || ++item.wakes % kWakesPerDrain == 0)
    connection.look_at_kernel(item.alive);
  if ((got & EPOLLRDHUP) != 0) connection.look_at_kernel(item.alive);  // bytes, then the end
  if (item.disabled || (got & EPOLLPRI & item.events) == 0) return false;
  if ((item.events & EPOLLONESHOT) != 0) item.disabled = true;
  return true;
}

// Replaces marks by the program's data and drops what is not for it. Returns how many remain.
int EpollSet::from_kernel(int epoll_fd, epoll_event* events, int count) {
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    const std::uint32_t got = events[i].events;
    if (!items_.is_mark(events[i].data)) {
      events[kept++] = events[i];
      continue;
    }
    Item* item = items_.of_mark(events[i].data);
    if (item == nullptr) continue;
    if (item->state == Item::State::kRemoved) {
      // The program does not put it in again soon.
      if (descriptor_entry(item->fd).load(std::memory_order_relaxed) == item->object.get())
        real().epoll_ctl(epoll_fd, EPOLL_CTL_DEL, item->fd, nullptr);
      bury(*item);
      continue;
    }
    heat(*item);
    if (item->muted) continue;
    if (item->object.is(Kind::kConnection)) {
      if (!ring(*item, got)) continue;
      events[kept].events = EPOLLPRI;
      events[kept++].data = item->data;
    } else if (!item->object.is(Kind::kEpoll) && !item->object.awaits_offer()) {
      pass(*item, got, events[kept++]);
    }  // else ready() says what is in the set, and settle_waiting() what becomes of the socket
  }
  return kept;
}

bool EpollSet::any_mark(const epoll_event* events, int count) const {
  return std::any_of(events, events + count,
                     [this](const epoll_event& event) { return items_.is_mark(event.data); });
}

bool EpollSet::asked_just_now() const { return Clock::now() - asked_ < kWithoutKernel; }

// Whether the kernel says at the next look what it says under these data now, if it still is so.
bool EpollSet::tells_again(epoll_data_t data) const {
  if (!items_.is_mark(data)) return edges_.load(std::memory_order_relaxed) == 0;
  const Item* item = items_.of_mark(data);
  return item == nullptr ||
         (!item->object.is(Kind::kConnection) && (item->events & (EPOLLET | EPOLLONESHOT)) == 0);
}

// For one that only asks: takes the rings of bells, and keeps what the kernel tells but once. Of
// what is the kernel's alone a second look tells what that is.
bool EpollSet::look_in_kernel(int epoll_fd) {
  constexpr int kMost = 16;
  bool any = false;
  bool unsure = true;
  for (int looks = 0; looks < 2 && unsure; ++looks) {
    unsure = false;
    epoll_event events[kMost];
    const int got = real().epoll_wait(epoll_fd, events, kMost, 0);
    // Closed out of our sight, and the number means something else.
    if (got < 0) return is_readable(epoll_fd);
    for (int i = 0; i < got; ++i) {
      const epoll_data_t data = events[i].data;
      const bool again = tells_again(data);
      if (from_kernel(epoll_fd, &events[i], 1) == 0) continue;
      any = true;
      if (again) continue;
      const auto same = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& one) {
        return one.given.u64 == data.u64 && one.event.events == events[i].events;
      });
      if (looks != 0 && !items_.is_mark(data) && same != kept_.end()) {
        kept_.erase(same);
        continue;
      }
      kept_.push_back({events[i], data});
      unsure |= !items_.is_mark(data);
    }
  }
  return any;
}

bool EpollSet::ready() {
  const int epoll_fd = number();
  if (epoll_fd < 0) return false;
  if (unused()) return is_readable(epoll_fd);
  const Hold hold(*this);
  if (!hold) return is_readable(epoll_fd);  // in a signal handler
  if (!kept_.empty()) return true;
  if (look_in_kernel(epoll_fd)) return true;
  return std::any_of(hot_.begin(), hot_.end(),
                     [this](Item* item) { return take_ready(*item, false) != 0; });
}

int EpollSet::spin(int epoll_fd, epoll_event* events, int most, Clock::time_point deadline) {
  Spin spin;
  while (spin.again()) {
    const Hold hold(*this);
    if (!hold || hot_.empty()) return 0;
    if (const int count = collect(events, most); count != 0) {
      spin.found();
      hand_over(epoll_fd);
      return count;
    }
    if (spin.look_further()) {
      if (Clock::now() >= deadline) break;
      const int got = real().epoll_wait(epoll_fd, events, most, 0);
      asked_ = Clock::now();
      if (const int count = from_kernel(epoll_fd, events, got); count > 0) {
        hand_over(epoll_fd);
        return count;
      }
    }
  }
  if (spin.signal() == SignalWatch::Came::kNothing) return 0;
  errno = EINTR;
  return -1;
}

// After a sleep in the kernel: what of `got` events the program gets, and what else is there.
int EpollSet::woken(int epoll_fd, epoll_event* events, int got, int most) {
  const int kept_errno = errno;
  // A connect() may have ended: then it is decided before the program hears of it.
  settle(events, got);
  const Hold hold(*this);
  if (!hold) return interrupted();
  awake();
  asked_ = Clock::now();
  if (got <= 0) {
    errno = kept_errno;
    return got;
  }
  int count = from_kernel(epoll_fd, events, got);
  if (count < most) count += collect(events + count, most - count);
  if (count != 0) hand_over(epoll_fd);
  return count;
}

int EpollSet::wait(int epoll_fd, epoll_event* events, int most, const timespec* timeout,
                   const sigset_t* mask) {
  auto deadline = Clock::time_point::max();
  const bool at_once = timeout != nullptr && timeout->tv_sec == 0 && timeout->tv_nsec == 0;
  if (timeout != nullptr && timeout->tv_sec < 1'000'000'000)
    deadline = Clock::now() + std::chrono::seconds(timeout->tv_sec) + nanoseconds(timeout->tv_nsec);
  if (unused()) {
    int got = 0;
    {
      const Counted asleep(asleep_);
      got = wait_in_kernel(epoll_fd, events, most, timeout, mask);
    }
    // Another thread may have added the first of ours meanwhile.
    if (got <= 0 || !any_mark(events, got)) return got;
    got = woken(epoll_fd, events, got, most);
    if (got != 0 || at_once || Clock::now() >= deadline) return got;
  }
  // Signals that come while it spins are not those that `mask` lets in.
  bool spun = at_once || mask != nullptr;
  for (;;) {
    const bool waiting = settle_waiting();
    std::optional<Counted> asleep;
    bool armed = at_once;
    int count = 0;
    {
      const Hold hold(*this);
      if (!hold) return interrupted();
      items_.purge();
      count = collect(events, most);
      if (count != 0 && (count == most || asked_just_now())) {
        hand_over(epoll_fd);
        return count;
      }
      if (count != 0 || at_once) {
        const int got = real().epoll_wait(epoll_fd, events + count, most - count, 0);
        asked_ = Clock::now();
        if (got < 0) return count != 0 ? count : -1;
        int all = count + from_kernel(epoll_fd, events + count, got);
        // Those whose bell rang; what was collected before is not asked again.
        if (got > 0 && all < most) all += collect_new(events + all, most - all, count != 0);
        hand_over(epoll_fd);
        return all;
      }
      if (spun) armed = arm_hot();
      if (armed) asleep.emplace(asleep_);
    }
    if (!spun) {
      spun = true;
      count = spin(epoll_fd, events, most, deadline);
      if (count != 0) return count;
      continue;
    }
    if (!armed) continue;
    auto until = deadline;
    if (waiting) until = std::min(deadline, Clock::now() + std::chrono::milliseconds(kDecisionNap));
    timespec left{};
    if (until != Clock::time_point::max()) {
      const auto rest = std::max(nanoseconds(0), nanoseconds(until - Clock::now()));
      left = {.tv_sec = rest.count() / 1'000'000'000, .tv_nsec = rest.count() % 1'000'000'000};
    }
    const int got = wait_in_kernel(epoll_fd, events, most,
                                   until == Clock::time_point::max() ? nullptr : &left, mask);
    asleep.reset();
    count = woken(epoll_fd, events, got, most);
    // Nothing of what came was for the program, and its time may be over by now.
    if (count != 0 || Clock::now() >= deadline) return count;
  }
}

}  // namespace leat::preload
