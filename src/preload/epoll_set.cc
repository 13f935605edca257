#include "preload/epoll_set.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>

#include "posix/times.h"
#include "preload/real.h"
#include "preload/waiting.h"

namespace leat::preload {
namespace {

using posix::Clock;
using posix::Deadline;
using posix::kNoDeadline;

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

// The program may have closed the item's number out of our sight, and the kernel may have given it
// to another file, while a copy is open and rings. What becomes of the item then, catch_up() sees.
// -1: it has none.
int current_number(const EpollItem& item) {
  int fd = item.alive;
  while (!is_current(fd, *item.object)) [[unlikely]] {
      forget_lost(fd, *item.object);
      fd = another(*item.object, -1);
      if (fd < 0) break;
    }
  return fd;
}

}  // namespace

std::uint32_t EpollSet::take_ready(Item& item, bool consume) const {
  const bool told = consume && item.told_in == round_;
  if (item.disabled && !told) return 0;
  if (item.object.is(Kind::kEpoll)) {
    const bool inside = item.object->set->ready() && means(item.alive, *item.object);
    if (inside && consume) item.fire();
    return inside ? (item.events & EPOLLIN) : 0;
  }
  if (!item.object.is(Kind::kConnection)) return 0;
  Connection& connection = item.object->connection;
  const std::uint32_t mask = connection.poll_mask(item.alive);
  const posix::EdgeMarks marks = connection.edge_marks();
  const std::uint32_t ready = item.news(mask, marks, told);
  if (ready == 0) return 0;
  // If the program has closed it out of our sight, it must not hear of it any more.
  if (!told && current_number(item) < 0) return 0;
  if (consume) {
    item.idle = 0;
    item.tell(ready, marks);
  }
  return ready;
}

// Adds what is ready to a collection. Of an item that is in it already, what is new there.
int EpollSet::tell(Item& item, epoll_event* to) {
  const bool told = item.told_in == round_;
  const std::uint32_t ready = take_ready(item, true);
  if (told) item.told->events |= ready;
  if (told || ready == 0) return 0;
  to->events = ready;
  to->data = item.data;
  item.told = to;
  item.told_in = round_;
  return 1;
}

int EpollSet::collect(epoll_event* events, int most) {
  int count = 0;
  while (count < most && !kept_.empty()) {
    events[count++] = kept_.back().event;
    kept_.pop_back();
  }
  const std::size_t items = hot_.size();
  for (std::size_t i = 0; i < items && count < most; ++i)
    count += tell(*hot_[(next_hot_ + i) % items], events + count);
  if (items != 0) next_hot_ = (next_hot_ + 1) % items;
  return count;
}

// As collect(), of those whose bell rang since that began.
int EpollSet::collect_rung(epoll_event* events, int most) {
  int count = 0;
  for (Item* item : hot_) {
    if (item->rung_in == round_ && (count < most || item->told_in == round_))
      count += tell(*item, events + count);
  }
  return count;
}

// Hands on what the kernel says about an item that is not carried, as far as the program asked for
// it: an item that was carried, and whose number was closed since, is in the kernel's set for
// everything. False: nothing of it. If the item is carried later, the program is not told the same
// once more.
bool EpollSet::pass(Item& item, std::uint32_t got, epoll_event& to) {
  got = item.ready(got);
  if (got == 0) return false;
  to.events = got;
  to.data = item.data;
  if ((got & (EPOLLHUP | EPOLLERR)) != 0)
    item.fire();  // it is not connected yet
  else
    item.tell(got, {});
  return true;
}

// The bell of a connection. True if there is urgent data, of which the kernel alone knows.
bool EpollSet::ring(Item& item, std::uint32_t got) const {
  Connection& connection = item.object->connection;
  // Also what came without bytes that are carried: it may be bytes that went past us.
  if ((got & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0 || ++item.wakes % kWakesPerDrain == 0 ||
      connection.readable_bytes() == 0) {
    const int fd = current_number(item);
    if (fd >= 0) connection.look_at_kernel(fd);
    if (fd >= 0 && (got & EPOLLRDHUP) != 0) connection.look_at_kernel(fd);  // bytes, then the end
  }
  // An urgent byte that came is an edge as any other is.
  if ((got & EPOLLPRI) != 0) item.seen.arrivals = ~std::uint64_t{0};
  const bool disabled = item.disabled && item.told_in != round_;
  if (disabled || (got & EPOLLPRI & item.events) == 0) return false;
  item.fire();
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
      if (means(item->fd, *item->object))
        real().epoll_ctl(epoll_fd, EPOLL_CTL_DEL, item->fd, nullptr);
      bury(*item);
      continue;
    }
    heat(*item);
    item->rung_in = round_;
    if (item->muted) continue;
    if (item->object.is(Kind::kConnection)) {
      if (!ring(*item, got)) continue;
      if (item->told_in == round_) {
        item->told->events |= EPOLLPRI;
        continue;
      }
      item->told_in = round_;
      item->told = &events[kept];
      events[kept].events = EPOLLPRI;
      events[kept++].data = item->data;
    } else if (!item->object.is(Kind::kEpoll) && !item->object.awaits_offer()) {
      if (pass(*item, got, events[kept])) ++kept;
    }  // else ready() says what is in the set, and settle_waiting() what becomes of the socket
  }
  return kept;
}

bool EpollSet::any_mark(const epoll_event* events, int count) const {
  return std::any_of(events, events + count,
                     [this](const epoll_event& event) { return items_.is_mark(event.data); });
}

bool EpollSet::asked_just_now() const { return Clock::now() - asked_ < kWithoutKernel; }

// Has the kernel say at the next look what it says under these data now, if it still is so. False:
// it may be that it does not.
bool EpollSet::tell_again(int epoll_fd, epoll_data_t data, std::uint32_t got) {
  if (!items_.is_mark(data)) {
    if (once_outdated_.load(std::memory_order_relaxed)) return false;
    const auto arm = [epoll_fd](int fd, epoll_event& event) {
      return real().epoll_ctl(epoll_fd, EPOLL_CTL_MOD, fd, &event) == 0;
    };
    std::uint32_t lost = 0;
    const bool again = once_.told(data, arm, lost);
    if (lost != 0) edges_.fetch_add(lost, std::memory_order_relaxed);
    return again || edges_.load(std::memory_order_relaxed) == 0;
  }
  Item* item = items_.of_mark(data);
  if (item == nullptr || item->state == Item::State::kRemoved || item->muted ||
      item->object.is(Kind::kConnection) || item->object.is(Kind::kEpoll) ||
      item->object.awaits_offer() || item->ready(got) == 0)
    return false;
  return (item->events & (EPOLLET | EPOLLONESHOT)) == 0 ||
         (item->state == Item::State::kCurrent &&
          register_in_kernel(epoll_fd, EPOLL_CTL_MOD, *item) == 0);
}

// For a caller that only asks whether there are events: takes the rings off the bells, and keeps
// the events that the kernel does not repeat. For the kernel's own descriptors a second look shows
// whether it repeats them.
bool EpollSet::look_in_kernel(int epoll_fd) {
  constexpr int kMost = 16;
  bool any = false;
  bool unsure = true;
  for (int looks = 0; looks < 2 && unsure; ++looks) {
    unsure = false;
    ++round_;
    epoll_event events[kMost];
    const int got = real().epoll_wait(epoll_fd, events, kMost, 0);
    if (got < 0) {
      forget_number(epoll_fd);
      return is_readable(epoll_fd);
    }
    for (int i = 0; i < got; ++i) {
      const epoll_data_t data = events[i].data;
      const bool again = tell_again(epoll_fd, data, events[i].events);
      any |= again;
      if (again || from_kernel(epoll_fd, &events[i], 1) == 0) continue;
      any = true;
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

// After the kernel refused: the program closed the number out of our sight, and it now means
// something other than a set of epoll.
void EpollSet::forget_number(int epoll_fd) const noexcept {
  const int error = errno;
  if (error == EINVAL || error == EBADF) forget_lost(epoll_fd, *holder_);
  errno = error;
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

int EpollSet::spin(int epoll_fd, epoll_event* events, int most, Deadline deadline) {
  Spin spin;
  while (spin.again()) {
    const Hold hold(*this);
    if (!hold || hot_.empty()) return 0;
    ++round_;
    if (const int count = collect(events, most); count != 0) {
      spin.found();
      hand_over(epoll_fd);
      return count;
    }
    if (spin.look_further()) {
      if (Clock::now() >= deadline) break;
      const int got = real().epoll_wait(epoll_fd, events, most, 0);
      asked_ = Clock::now();
      int count = from_kernel(epoll_fd, events, got);
      if (count > 0) {
        // With what the kernel told besides, of connections.
        count += collect_rung(events + count, most - count);
        hand_over(epoll_fd);
        return count;
      }
    }
  }
  if (spin.signal() == SignalWatch::Came::kNothing) return 0;
  return fail(EINTR);
}

// After a sleep in the kernel: what of `got` events the program gets, and what else is there.
int EpollSet::woken(int epoll_fd, epoll_event* events, int got, int most) {
  const int kept_errno = errno;
  // A connect() may have ended: then it is decided before the program hears of it.
  settle(events, got);
  const Hold hold(*this);
  if (!hold) return fail(EINTR);  // a signal handler that interrupted this thread at the set
  awake();
  ++round_;
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
  const Deadline deadline = posix::deadline_of(timeout);
  const bool at_once = posix::is_zero(timeout);
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
      if (!hold) return fail(EINTR);
      items_.purge();
      ++round_;
      count = collect(events, most);
      if (count != 0 && (count == most || asked_just_now())) {
        hand_over(epoll_fd);
        return count;
      }
      if (count != 0 || at_once) {
        const int got = real().epoll_wait(epoll_fd, events + count, most - count, 0);
        asked_ = Clock::now();
        if (got < 0) {
          forget_number(epoll_fd);
          return -1;
        }
        int all = count + from_kernel(epoll_fd, events + count, got);
        if (got > 0) all += collect_rung(events + all, most - all);
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
    Deadline until = deadline;
    if (waiting) until = std::min(deadline, Clock::now() + std::chrono::milliseconds(kDecisionNap));
    const timespec left = posix::time_left(until);
    const int got =
        wait_in_kernel(epoll_fd, events, most, until == kNoDeadline ? nullptr : &left, mask);
    asleep.reset();
    count = woken(epoll_fd, events, got, most);
    // Nothing of what came was for the program, and its time may be over by now.
    if (count != 0 || Clock::now() >= deadline) return count;
  }
}

}  // namespace leat::preload
