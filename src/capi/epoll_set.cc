#include "capi/epoll_set.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/epoll.h"
#include "base/random.h"
#include "base/system_error.h"
#include "capi/call.h"
#include "capi/waiting.h"
#include "channel/channel_wait.h"
#include "posix/epoll_wait.h"
#include "posix/times.h"

namespace leat::detail::c {
namespace {

// Sets with more handles do not spin: a look at each would take too long.
constexpr std::size_t kMostToSpin = 16;

static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLRDHUP == POLLRDHUP);

constexpr std::uint64_t kMarkBits = 0xffff'ffff'0000'0000;

std::uint64_t new_marks() {
  std::array<std::uint8_t, sizeof(std::uint64_t)> bytes{};
  fill_random(bytes);
  const auto random = std::bit_cast<std::uint64_t>(bytes);
  return (random & kMarkBits & ~(std::uint64_t{1} << 62)) | std::uint64_t{1} << 63;
}

}  // namespace

EpollSet::EpollSet(int number)
    : marks_begin_(new_marks()),
      set_(one_more(number)),
      news_(new_event()),
      next_mark_(marks_begin_ + 1) {
  epoll_add(set_, news_.get(), EPOLLIN | EPOLLET, EPOLL_CTL_ADD, marks_begin_);
}

int EpollSet::control(int operation, int fd, epoll_event* event,
                      const std::shared_ptr<Pollable>& object) {
  if (object == nullptr) return epoll_ctl(set_.get(), operation, fd, event) < 0 ? -errno : 0;
  if (object.get() == this) return -EINVAL;
  if (operation != EPOLL_CTL_DEL && event == nullptr) return -EFAULT;
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find({fd, object.get()});
  epoll_event mark{};
  mark.events = EPOLLIN | EPOLLET;
  const Entry* const known = found != entries_.end() ? found->second.get() : nullptr;
  if (event != nullptr && Entry::bad_exclusive(operation, known, *event)) return -EINVAL;
  switch (operation) {
    case EPOLL_CTL_ADD: {
      if (found != entries_.end()) return -EEXIST;
      auto entry = std::make_unique<Entry>();
      const std::uint64_t own_mark = next_mark_++;  // a packed member lends no reference
      mark.data.u64 = own_mark;
      if (epoll_ctl(set_.get(), EPOLL_CTL_ADD, fd, &mark) < 0) return -errno;
      entry->object = object;
      entry->mark = own_mark;
      entry->want(*event);
      marks_[own_mark] = entry.get();
      heat(*entry);
      entries_[{fd, object.get()}] = std::move(entry);
      break;
    }
    case EPOLL_CTL_MOD: {
      if (found == entries_.end()) return -ENOENT;
      Entry& entry = *found->second;
      entry.want(*event);
      heat(entry);
      break;
    }
    case EPOLL_CTL_DEL: {
      if (found == entries_.end()) return -ENOENT;
      epoll_ctl(set_.get(), EPOLL_CTL_DEL, fd, nullptr);
      erase(found);
      return 0;
    }
    default:
      return -EINVAL;
  }
  wake();
  return 0;
}

void EpollSet::forget(const Pollable& object) noexcept {
  const std::lock_guard lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();)
    entry = entry->first.second == &object ? erase(entry) : std::next(entry);
}

// --- all with the lock

// Its mark may still come from the kernel, and is known as one.
EpollSet::Entries::iterator EpollSet::erase(Entries::iterator entry) {
  std::erase(hot_, entry->second.get());
  marks_.erase(entry->second->mark);
  return entries_.erase(entry);
}

bool EpollSet::is_mark(std::uint64_t data) const { return (data & kMarkBits) == marks_begin_; }

void EpollSet::heat(Entry& entry) {
  if (!std::exchange(entry.hot, true)) hot_.push_back(&entry);
}

void EpollSet::wake() {
  if (waiters_ != 0) eventfd_write(news_.get(), 1);
}

// The events to report to the program; 0: nothing now. It stays hot if a look may find more
// although the kernel does not name it again.
unsigned EpollSet::look(Entry& entry, bool prepare, bool report) {
  const auto object = entry.object.lock();
  if (object == nullptr || entry.disabled) {
    entry.hot = false;
    return 0;
  }
  const bool edge = (entry.events & EPOLLET) != 0;
  if (edge) object->drain();
  const unsigned mask = object->mask(prepare && !edge);
  const posix::EdgeMarks marks = object->marks();
  const unsigned told = entry.news(mask, marks);
  const bool waits_for_room = (entry.events & EPOLLOUT) != 0 && (mask & POLLOUT) == 0;
  const bool silent =
      waits_for_room || (told == 0 && prepare && object->waits_silently(entry.events & ~EPOLLOUT));
  silent_ = silent_ || silent;
  entry.hot = (told != 0 && !(edge && report)) || silent || (!prepare && !edge);
  if (told != 0 && report) {
    entry.tell(told, marks);
    entry.hot = entry.hot && !entry.disabled;
  }
  return told;
}

// Events of handles.
int EpollSet::collect(epoll_event* events, int most, bool prepare) {
  int count = 0;
  silent_ = false;
  std::vector<Entry*> hot;
  hot.swap(hot_);
  std::vector<Entry*> told;
  for (Entry* entry : hot) {
    if (count == most) {
      hot_.push_back(entry);
      continue;
    }
    const unsigned mask = look(*entry, prepare, true);
    if (mask != 0) events[count++] = {mask, entry->data};
    // Those that were reported go last, so that a short array reaches all in turn.
    if (entry->hot) (mask != 0 ? told : hot_).push_back(entry);
  }
  hot_.insert(hot_.end(), told.begin(), told.end());
  return count;
}

// Takes the marks out of what the kernel gave; returns how many events are left.
int EpollSet::sort(epoll_event* events, int count) {
  const auto take_mark = [this](const epoll_event& event) {
    if (!is_mark(event.data.u64)) return false;
    const auto found = marks_.find(std::uint64_t{event.data.u64});
    if (found != marks_.end()) heat(*found->second);
    return true;
  };
  return static_cast<int>(std::remove_if(events, events + count, take_mark) - events);
}

std::chrono::microseconds EpollSet::spin_time() {
  const std::lock_guard lock(mutex_);
  std::chrono::microseconds longest{0};
  if (entries_.size() > kMostToSpin) return longest;
  for (const auto& [key, entry] : entries_) {
    const auto object = entry->object.lock();
    // Spinning for ever would keep the kernel's own descriptors waiting.
    if (object != nullptr)
      longest = std::max(longest, object->spin() < std::chrono::microseconds::zero()
                                      ? std::chrono::microseconds(kLifelineInterval)
                                      : object->spin());
  }
  return longest;
}

bool EpollSet::spin_once() {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, entry] : entries_) {
    const auto object = entry->object.lock();
    if (object == nullptr || entry->disabled) continue;
    const unsigned ready = object->mask(false) & entry->events & (EPOLLIN | EPOLLRDHUP);
    if (ready == 0) continue;
    if ((entry->events & EPOLLET) != 0 && !entry->is_edge(ready, object->marks())) continue;
    heat(*entry);
    return true;
  }
  return false;
}

// --- waiting

// Begins with the lock, in the same breath as the look that found nothing: a thread
// that changes something after that look wakes the sleeper.
class EpollSet::Sleeper {
 public:
  explicit Sleeper(EpollSet& set) : set_(set) { ++set_.waiters_; }
  ~Sleeper() {
    const std::lock_guard lock(set_.mutex_);
    --set_.waiters_;
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

 private:
  EpollSet& set_;
};

long EpollSet::wait(epoll_event* events, int most, Deadline deadline, const sigset_t* signals) {
  if (most <= 0) return -EINVAL;
  bool spun = passed(deadline);
  std::chrono::microseconds nap = kFirstNap;
  std::optional<SignalsHeld> held;
  int given = 0;  // by the kernel
  for (bool looked_at_kernel = false;;) {
    if (!looked_at_kernel) {
      given = epoll_wait(set_.get(), events, most, 0);
      if (given < 0) return -errno;
    }
    looked_at_kernel = false;
    const bool over = passed(deadline);
    bool silent = false;
    std::optional<Sleeper> sleeper;
    {
      const std::lock_guard lock(mutex_);
      int count = sort(events, given);
      if (count < most) count += collect(events + count, most - count, spun);
      if (count != 0) {
        // As the kernel does: what is still ready is told to the next waiter, which also sees to
        // it that more of it wakes.
        if (!hot_.empty()) wake();
        return count;
      }
      silent = silent_;
      if (held && !over) sleeper.emplace(*this);
    }
    if (!spun) {
      spun = true;
      spin_for(
          spin_budget_, spin_time(), [this] { return spin_once(); },
          [&](Deadline now) { return now >= deadline; }, [] { return false; });
      continue;
    }
    if (over) return 0;
    if (!held) {
      held.emplace();
      continue;  // what came since, before the signals
    }
    Deadline until = deadline;
    if (silent) {
      until = std::min(until, Clock::now() + nap);
      nap = std::min<std::chrono::microseconds>(nap * 2, kLongestNap);
    }
    const timespec time = posix::time_left(until);
    const Call::Sleep sleep;
    given = posix::wait_for_events(&::epoll_pwait2, &::epoll_pwait, set_.get(), events, most,
                                   until == kNoDeadline ? nullptr : &time,
                                   signals != nullptr ? signals : &held->before());
    if (given < 0) return -errno;
    looked_at_kernel = true;
  }
}

unsigned EpollSet::mask(bool prepare) {
  {
    const std::lock_guard lock(mutex_);
    silent_ = false;
    for (Entry* entry : hot_) {
      const bool ready = look(*entry, prepare, false) != 0;
      entry->hot = true;  // it stays in the list
      if (ready) return POLLIN | POLLRDNORM;
    }
  }
  pollfd entry{set_.get(), POLLIN, 0};
  return poll(&entry, 1, 0) > 0 ? POLLIN | POLLRDNORM : 0;
}

bool EpollSet::waits_silently(unsigned) {
  const std::lock_guard lock(mutex_);
  return silent_;
}

void EpollSet::drain() {
  const bool ready = mask(false) != 0;
  const std::lock_guard lock(mutex_);
  if (ready && !was_ready_) ++arrivals_;
  was_ready_ = ready;
}

posix::EdgeMarks EpollSet::marks() {
  const std::lock_guard lock(mutex_);
  return {.arrivals = arrivals_};
}

}  // namespace leat::detail::c
