#include "preload/epoll_set.h"

#include <poll.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include "preload/real.h"
#include "preload/waiting.h"

namespace leat::preload {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr std::uint32_t kAlways = EPOLLERR | EPOLLHUP;
// How long what is found without the kernel may hide what only that knows.
constexpr auto kWithoutKernel = std::chrono::microseconds(20);
// How many wakings by the bell pass until its rings are taken off the kernel's socket. The kernel
// acknowledges small segments when they are read, else after 40 ms, and sends no more than 10 that
// are not acknowledged (RFC 6928): a ring beyond them comes some 10 ms late.
constexpr unsigned kWakesPerDrain = 4;

struct Registry {
  detail::SpinLock lock;
  std::unordered_map<EpollSet*, int> sets;  // and a descriptor
};

Registry& registry() {
  static Registry* const kept = new Registry;
  return *kept;
}

std::uint64_t new_mark() {
  // 32 random bits above the descriptor: the program's own data is not like it.
  static const std::uint64_t random = [] {
    std::uint32_t bits = 0;
    if (getrandom(&bits, sizeof(bits), 0) != sizeof(bits)) bits = 0x9e3779b9;
    return static_cast<std::uint64_t>(bits | 1U) << 32;
  }();
  return random;
}

}  // namespace

EpollSet::EpollSet(int fd) : mark_(new_mark()) {
  const std::lock_guard guard(registry().lock);
  registry().sets.emplace(this, fd);
}

EpollSet::~EpollSet() {
  const std::lock_guard guard(registry().lock);
  registry().sets.erase(this);
}

bool EpollSet::empty() {
  const std::lock_guard guard(lock_);
  return items_.empty() && removed_.empty() && orphans_.empty() && kept_.empty();
}

void EpollSet::note_native(const epoll_event* event) {
  if (event == nullptr || (event->events & (EPOLLET | EPOLLONESHOT)) == 0) return;
  const std::lock_guard guard(lock_);
  edges_ = true;
}

EpollSet::Item* EpollSet::marked(std::uint64_t data) {
  if ((data & ~std::uint64_t{0xffffffff}) != mark_) return nullptr;
  const auto found = items_.find(static_cast<int>(data & 0xffffffff));
  return found == items_.end() ? nullptr : found->second.get();
}

int EpollSet::register_in_kernel(int epoll_fd, int operation, Item& item) const {
  epoll_event event{};
  event.data.u64 = mark(item.fd);
  event.events = item.object.is(Kind::kConnection)
                     ? EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET | (item.events & EPOLLPRI)
                     : item.events;
  // As if there were no room yet.
  if (item.object.awaits_offer()) event.events &= ~std::uint32_t{EPOLLOUT};
  // The kernel does not change what is exclusive.
  if (operation == EPOLL_CTL_MOD && (item.events & EPOLLEXCLUSIVE) != 0) {
    real().epoll_ctl(epoll_fd, EPOLL_CTL_DEL, item.fd, nullptr);
    operation = EPOLL_CTL_ADD;
  }
  return real().epoll_ctl(epoll_fd, operation, item.fd, &event);
}

// Of what the kernel refuses of EPOLLEXCLUSIVE, what it does not see.
bool EpollSet::bad_exclusive(int operation, const Item* item, const epoll_event& event) {
  constexpr std::uint32_t kWithExclusive =
      EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;
  const bool wanted = (event.events & EPOLLEXCLUSIVE) != 0;
  if (operation == EPOLL_CTL_MOD)
    return item != nullptr && (wanted || (item->events & EPOLLEXCLUSIVE) != 0);
  return operation == EPOLL_CTL_ADD && wanted && (event.events & ~kWithExclusive) != 0;
}

// A new descriptor may have the number of a closed one, and so the same mark.
void EpollSet::heat_orphans(std::uint64_t data) {
  for (const std::unique_ptr<Item>& item : orphans_) {
    if (mark(item->fd) == data) heat(*item);
  }
}

void EpollSet::heat(Item& item) {
  if (item.hot || item.object.is(Kind::kSocket)) return;
  item.hot = true;
  item.idle = 0;
  hot_.push_back(&item);
  if (!sleep_elsewhere()) item.leave_bells();
}

// Of what is carried only we know what the program wants; the kernel's registration says the same
// all the time. So it is left as it is, also when the program takes it out, which many do to put it
// in again: no system call. Who sleeps must see the change, though.
int EpollSet::change(int epoll_fd, Item& item, const epoll_event& event) {
  const bool same = ((item.events ^ event.events) & EPOLLPRI) == 0;
  const std::uint32_t before = std::exchange(item.events, event.events);
  if ((sleep_elsewhere() || !same) && register_in_kernel(epoll_fd, EPOLL_CTL_MOD, item) != 0) {
    item.events = before;
    return -1;
  }
  item.data = event.data;
  item.seen_arrivals = ~std::uint64_t{0};  // whatever is there is new
  item.seen_full = 0;
  item.reported = 0;
  item.disabled = false;
  heat(item);
  return 0;
}

int EpollSet::remove(int epoll_fd, int fd, epoll_event* event) {
  const auto found = items_.find(fd);
  if (found == items_.end()) return real().epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, event);
  Item& item = *found->second;
  std::erase(hot_, &item);
  item.hot = false;
  item.leave_bells();
  if (item.object.is(Kind::kConnection) && !inherited_) {
    removed_.insert(items_.extract(found));
    return 0;
  }
  items_.erase(found);
  return real().epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, event);
}

// Now the kernel's set must not have it either.
void EpollSet::forget_removed(int epoll_fd, int fd) {
  if (removed_.erase(fd) != 0) real().epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, nullptr);
}

int EpollSet::control(int epoll_fd, int operation, int fd, epoll_event* event, Reference& object) {
  const std::lock_guard guard(lock_);
  const auto same = [&](const auto& found, const auto& items) {
    return found != items.end() && found->second->object.get() == object.get() &&
           object.is(Kind::kConnection) && event != nullptr;
  };
  const auto found = items_.find(fd);
  if (event != nullptr && object.is(Kind::kConnection) &&
      bad_exclusive(operation, found != items_.end() ? found->second.get() : nullptr, *event)) {
    errno = EINVAL;
    return -1;
  }
  if (operation == EPOLL_CTL_MOD && same(found, items_))
    return change(epoll_fd, *found->second, *event);
  if (const auto again = removed_.find(fd); again != removed_.end()) {
    if (operation == EPOLL_CTL_ADD && same(again, removed_))
      return change(epoll_fd, *items_.insert(removed_.extract(again)).position->second, *event);
    forget_removed(epoll_fd, fd);
  }
  if (operation == EPOLL_CTL_DEL) return remove(epoll_fd, fd, event);
  if (event == nullptr || (operation != EPOLL_CTL_ADD && operation != EPOLL_CTL_MOD))
    return real().epoll_ctl(epoll_fd, operation, fd, event);
  if (operation == EPOLL_CTL_MOD && found == items_.end())
    return real().epoll_ctl(epoll_fd, operation, fd, event);
  auto item = std::make_unique<Item>();
  item->fd = item->alive = fd;
  item->object = Reference(object.get());
  object->references.fetch_add(1, std::memory_order_relaxed);  // the item's
  item->events = event->events;
  item->data = event->data;
  item->seen_arrivals = ~std::uint64_t{0};  // whatever is there is new
  if (register_in_kernel(epoll_fd, operation, *item) != 0) return -1;
  if (item->object.is(Kind::kSocket)) edges_ |= (event->events & (EPOLLET | EPOLLONESHOT)) != 0;
  if (item->object.awaits_offer()) waiting_.push_back(fd);
  has_sets_ |= item->object.is(Kind::kEpoll);
  if (found != items_.end()) std::erase(hot_, found->second.get());
  Item& kept = *item;
  items_[fd] = std::move(item);
  heat(kept);
  return 0;
}

void EpollSet::closed(int epoll_fd, int fd) {
  const std::lock_guard guard(lock_);
  if (!inherited_) forget_removed(epoll_fd, fd);
  const auto found = items_.find(fd);
  std::erase_if(orphans_, [&](const std::unique_ptr<Item>& item) {
    if (item->alive == fd) item->alive = another(*item->object, fd);
    if (item->alive >= 0) return false;
    std::erase(hot_, item.get());
    return true;
  });
  if (found == items_.end()) return;
  std::unique_ptr<Item> item = std::move(found->second);
  items_.erase(found);
  item->alive = another(*item->object, fd);
  // As in the kernel, but only for what is carried: else it needs nothing of us.
  if (item->alive >= 0 && (item->object.is(Kind::kConnection) || item->object.awaits_offer())) {
    if (item->object.awaits_offer()) waiting_.push_back(item->alive);
    orphans_.push_back(std::move(item));
    return;
  }
  // Of another process's copy we know nothing. A forked child must not take out what its parent
  // still has.
  if (!inherited_) real().epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, nullptr);
  std::erase(hot_, item.get());
}

void EpollSet::decided(int epoll_fd, const Object* object) {
  const std::lock_guard guard(lock_);
  for (auto& [fd, item] : items_) {
    if (item->object.get() != object) continue;
    register_in_kernel(epoll_fd, EPOLL_CTL_MOD, *item);
    heat(*item);
  }
  for (const std::unique_ptr<Item>& item : orphans_) {
    if (item->object.get() == object) heat(*item);
  }
}

void EpollSet::socket_is_decided(const Object* object) {
  std::vector<std::pair<EpollSet*, int>> sets;
  {
    const std::lock_guard guard(registry().lock);
    for (const auto& [set, fd] : registry().sets) sets.emplace_back(set, fd);
  }
  for (const auto& [set, fd] : sets) {
    // Still there: its descriptor holds it.
    const Reference holder = find(fd);
    if (holder.is(Kind::kEpoll) && holder->set == set) set->decided(fd, object);
  }
}

void EpollSet::descriptor_is_closed(int closed_fd) {
  std::vector<std::pair<EpollSet*, int>> sets;
  {
    const std::lock_guard guard(registry().lock);
    for (const auto& [set, fd] : registry().sets) sets.emplace_back(set, fd);
  }
  for (const auto& [set, fd] : sets) {
    const Reference holder = find(fd);
    if (holder.is(Kind::kEpoll) && holder->set == set) set->closed(fd, closed_fd);
  }
}

void EpollSet::after_fork_in_child() {
  // Another thread of the parent may have held them; here there is none.
  registry().lock.unlock();
  for (const auto& [set, fd] : registry().sets) {
    set->lock_.unlock();
    set->inherited_ = true;
    // The parent is counted in, not its child.
    for (auto* items : {&set->items_, &set->removed_})
      for (auto& [number, item] : *items) item->bells = 0;
    for (auto& item : set->orphans_) item->bells = 0;
  }
}

std::uint32_t EpollSet::take_ready(Item& item, bool consume) {
  if (item.disabled) return 0;
  if (item.object.is(Kind::kEpoll)) {
    const bool inside = item.object->set->ready(item.alive);
    if (inside && consume && (item.events & EPOLLONESHOT) != 0) item.disabled = true;
    return inside ? (item.events & EPOLLIN) : 0;
  }
  if (!item.object.is(Kind::kConnection)) return 0;
  Connection& connection = item.object->connection;
  const std::uint32_t mask = connection.poll_mask(item.alive);
  const std::uint64_t arrivals = connection.arrival_mark();
  const std::uint32_t full = connection.full_mark();
  const std::uint32_t ready = mask & ((item.events & ~kFlags) | kAlways);
  if (ready == 0) {
    item.reported = 0;
    return 0;
  }
  if ((item.events & EPOLLET) != 0) {
    const bool edge = (ready & ~item.reported) != 0 || arrivals != item.seen_arrivals ||
                      (full != item.seen_full && (ready & EPOLLOUT) != 0);
    if (!edge) return 0;
  }
  if (consume) {
    item.idle = 0;
    item.reported = ready;
    item.seen_arrivals = arrivals;
    item.seen_full = full;
    if ((item.events & EPOLLONESHOT) != 0) item.disabled = true;
  }
  return ready;
}

int EpollSet::collect(epoll_event* events, int most) {
  looked_at_ = hot_.size();
  int count = 0;
  while (count < most && !kept_.empty()) {
    events[count++] = kept_.back();
    kept_.pop_back();
  }
  const std::size_t items = hot_.size();
  for (std::size_t i = 0; i < items && count < most; ++i) {
    Item& item = *hot_[(next_ + i) % items];
    const std::uint32_t ready = take_ready(item, true);
    if (ready == 0) continue;
    events[count].events = ready;
    events[count++].data = item.data;
  }
  if (items != 0) next_ = (next_ + 1) % items;
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

// Replaces marks by the program's data and drops what is not for it. Returns how many remain.
int EpollSet::from_kernel(int epoll_fd, epoll_event* events, int count) {
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    Item* item = marked(events[i].data.u64);
    heat_orphans(events[i].data.u64);
    if (item == nullptr) {
      if ((events[i].data.u64 & ~std::uint64_t{0xffffffff}) != mark_) {
        events[kept++] = events[i];
      } else {
        // The program has taken it out, and does not put it in again soon.
        forget_removed(epoll_fd, static_cast<int>(events[i].data.u64 & 0xffffffff));
      }
      continue;
    }
    if (item->object.awaits_offer()) continue;  // settle_waiting() decides
    if (item->object.is(Kind::kSocket)) {
      if ((item->events & EPOLLONESHOT) != 0) item->disabled = false;
      events[kept] = events[i];
      events[kept++].data = item->data;
      continue;
    }
    heat(*item);
    if (!item->object.is(Kind::kConnection)) continue;
    Connection& connection = item->object->connection;
    const std::uint32_t got = events[i].events;
    if ((got & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0 || ++item->wakes % kWakesPerDrain == 0)
      connection.look_at_kernel(item->alive);
    if ((got & EPOLLRDHUP) != 0) connection.look_at_kernel(item->alive);  // bytes, then the end
    if ((got & EPOLLPRI & item->events) != 0) {
      events[kept].events = EPOLLPRI;
      events[kept++].data = item->data;
    }
  }
  return kept;
}

bool EpollSet::asked_just_now() const { return Clock::now() - asked_ < kWithoutKernel; }

bool EpollSet::ready(int epoll_fd) {
  epoll_event events[16];
  const std::lock_guard guard(lock_);
  if (!kept_.empty()) return true;
  if (items_.empty() && removed_.empty() && orphans_.empty()) {
    pollfd answer{.fd = epoll_fd, .events = POLLIN};
    return real().poll(&answer, 1, 0) > 0;
  }
  // Takes the rings of bells; what the kernel tells but once must be kept.
  const int count = from_kernel(epoll_fd, events, real().epoll_wait(epoll_fd, events, 16, 0));
  if (edges_) kept_.insert(kept_.end(), events, events + std::max(count, 0));
  if (count > 0) return true;
  return std::any_of(hot_.begin(), hot_.end(),
                     [this](Item* item) { return take_ready(*item, false) != 0; });
}

int EpollSet::spin(int epoll_fd, epoll_event* events, int most, Clock::time_point deadline) {
  Spin spin;
  while (spin.again()) {
    const std::lock_guard guard(lock_);
    if (hot_.empty()) return 0;
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

int EpollSet::wait(int epoll_fd, epoll_event* events, int most, const timespec* timeout,
                   const sigset_t* mask) {
  auto deadline = Clock::time_point::max();
  const bool at_once = timeout != nullptr && timeout->tv_sec == 0 && timeout->tv_nsec == 0;
  if (timeout != nullptr && timeout->tv_sec < 1'000'000'000)
    deadline = Clock::now() + std::chrono::seconds(timeout->tv_sec) + nanoseconds(timeout->tv_nsec);
  // Signals that come while it spins are not those that `mask` lets in.
  bool spun = at_once || mask != nullptr;
  for (;;) {
    const bool waiting = settle_waiting();
    std::optional<Counted> asleep;
    bool armed = at_once;
    int count = 0;
    {
      const std::lock_guard guard(lock_);
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
    const int got = real().epoll_pwait2(epoll_fd, events, most,
                                        until == Clock::time_point::max() ? nullptr : &left, mask);
    asleep.reset();
    // A connect() may have ended: then it is decided before the program hears of it.
    settle(events, got);
    const std::lock_guard guard(lock_);
    awake();
    asked_ = Clock::now();
    if (got == 0 && until != deadline) continue;
    if (got <= 0) return got;
    count = from_kernel(epoll_fd, events, got);
    if (count < most) count += collect(events + count, most - count);
    if (count == 0) continue;
    hand_over(epoll_fd);
    return count;
  }
}

}  // namespace leat::preload
