// What the program changes in a set of epoll, by epoll_ctl and by closing descriptors.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "preload/epoll_set.h"
#include "preload/real.h"

namespace leat::preload {

int EpollSet::register_in_kernel(int epoll_fd, int operation, Item& item) const noexcept {
  epoll_event event{};
  event.data = items_.mark(item);
  const Kind kind = item.object.kind();
  const bool awaiting = kind == Kind::kSocket && item.object.awaits_offer();
  event.events = kind == Kind::kConnection ? EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET
                                           : item.events;
  // As if there were no room yet; and what the program is not told must be told here but once.
  if (awaiting) event.events = (event.events & ~std::uint32_t{EPOLLOUT}) | EPOLLET;
  // The kernel does not change what is exclusive.
  if (operation == EPOLL_CTL_MOD && (item.events & EPOLLEXCLUSIVE) != 0) {
    real().epoll_ctl(epoll_fd, EPOLL_CTL_DEL, item.fd, nullptr);
    operation = EPOLL_CTL_ADD;
  }
  if (real().epoll_ctl(epoll_fd, operation, item.fd, &event) != 0) return -1;
  item.told_kind = kind;
  item.told_awaiting = awaiting;
  return 0;
}

void EpollSet::want(Item& item, const epoll_event& event) {
  item.want(event);
  item.muted = false;
  item.rung_in = 0;
}

// Only what is decided here is looked at here; a socket, or a listener, is the kernel's business.
void EpollSet::heat(Item& item) noexcept {
  if (item.hot) return;
  if (!item.object.is(Kind::kConnection) && !item.object.is(Kind::kEpoll)) return;
  item.hot = true;
  item.idle = 0;
  hot_.push_back(&item);
  if (!sleep_elsewhere()) item.leave_bells();
}

// A changed or removed item reports nothing from before.
void EpollSet::drop_kept(const Item& item) noexcept {
  if (kept_.empty()) return;
  std::erase_if(kept_,
                [mark = items_.mark(item)](const Kept& one) { return one.given.u64 == mark.u64; });
}

void EpollSet::bury(Item& item) noexcept {
  drop_kept(item);
  if (item.hot) std::erase(hot_, &item);
  std::erase(orphans_, &item);
  std::erase(waiting_, &item);
  items_.bury(item);
}

int EpollSet::add(int epoll_fd, int fd, const epoll_event& event, const Reference& object) {
  Item& item = items_.add(fd, object);
  for (std::vector<Item*>* list : {&hot_, &orphans_, &waiting_}) list->reserve(items_.room());
  want(item, event);
  // Before the kernel has the mark: a waiter that gets it looks at this. Release, with unused().
  used_.store(true, std::memory_order_release);
  if (register_in_kernel(epoll_fd, EPOLL_CTL_ADD, item) != 0) {
    items_.bury(item);
    return -1;
  }
  once_.forget(fd);
  if (item.told_kind == Kind::kSocket) has_sockets_.store(true, std::memory_order_relaxed);
  if (item.told_kind == Kind::kEpoll) has_sets_.store(true, std::memory_order_relaxed);
  if (item.told_awaiting) {
    waiting_.push_back(&item);
    any_waiting_.store(true, std::memory_order_relaxed);
  }
  heat(item);
  return 0;
}

// Only leat knows what the program wants of a carried connection; the kernel's registration is the
// same all the time. So the registration is left as it is, also when the program removes the
// connection, which many programs do only to add it again: that saves the system call. A thread
// that sleeps at the set must see the change, though.
int EpollSet::change_carried(int epoll_fd, Item& item, const epoll_event& event) {
  const bool same = item.told_kind == Kind::kConnection;
  const std::uint32_t before = std::exchange(item.events, event.events);
  if ((sleep_elsewhere() || !same) && register_in_kernel(epoll_fd, EPOLL_CTL_MOD, item) != 0) {
    item.events = before;
    return -1;
  }
  drop_kept(item);
  want(item, event);
  item.state = Item::State::kCurrent;
  heat(item);
  return 0;
}

// Also for what is to be added though it is there, which the kernel refuses, unless another process
// has taken it out of the set that both have.
int EpollSet::change(int epoll_fd, int operation, Item& item, const epoll_event& event) {
  const std::uint32_t before = std::exchange(item.events, event.events);
  if (register_in_kernel(epoll_fd, operation, item) != 0) {
    item.events = before;
    return -1;
  }
  drop_kept(item);
  want(item, event);
  heat(item);
  return 0;
}

int EpollSet::remove(int epoll_fd, Item& item, epoll_event* event) {
  if (item.object.is(Kind::kConnection) && item.told_kind == Kind::kConnection && !inherited_) {
    if (std::exchange(item.hot, false)) std::erase(hot_, &item);
    item.leave_bells();
    drop_kept(item);
    item.state = Item::State::kRemoved;
    return 0;
  }
  const int fd = item.fd;
  bury(item);
  return real().epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, event);
}

// Changes a descriptor that leat knows nothing about. If `locked`, this thread may update what the
// set knows about such descriptors; if not, that knowledge counts as outdated from now on.
int EpollSet::control_kernels(int epoll_fd, int operation, int fd, epoll_event* event,
                              bool locked) {
  const bool once = operation != EPOLL_CTL_DEL && event != nullptr &&
                    (event->events & (EPOLLET | EPOLLONESHOT)) != 0;
  // Counted before, as another thread may look meanwhile.
  if (once) edges_.fetch_add(1, std::memory_order_relaxed);
  const int result = real().epoll_ctl(epoll_fd, operation, fd, event);
  bool known = result != 0;
  if (!locked && result == 0) once_outdated_.store(true, std::memory_order_relaxed);
  if (locked && result == 0 && !once) once_.forget(fd);
  if (locked && result == 0 && once) known = once_.note(fd, *event);
  if (once && known) edges_.fetch_sub(1, std::memory_order_relaxed);
  return result;
}

int EpollSet::control(int epoll_fd, int operation, int fd, epoll_event* event,
                      const Reference& object) {
  const bool kernels = !object || object.is(Kind::kListener);
  if (kernels && unused()) {
    const bool locked = lock_.try_lock();
    const int result = control_kernels(epoll_fd, operation, fd, event, locked);
    if (locked) unlock();
    return result;
  }
  const Hold hold(*this);
  if (!hold)  // a signal handler has interrupted this thread in the midst of it
    return fail(ENOMEM);
  items_.purge();
  Item* item = items_.of_number(fd);
  if (item != nullptr && item->object.get() != object.get()) {
    // It was closed past us, and the kernel has forgotten it, or only copies of it are left.
    number_is_gone(*item);
    item = nullptr;
  }
  const bool wants = event != nullptr && (operation == EPOLL_CTL_ADD || operation == EPOLL_CTL_MOD);
  const bool carried = object.is(Kind::kConnection);
  const bool removed = item != nullptr && item->state == Item::State::kRemoved;
  if (wants && carried && Item::bad_exclusive(operation, removed ? nullptr : item, *event))
    return fail(EINVAL);
  if (removed) {
    if (wants && carried && operation == EPOLL_CTL_ADD)
      return change_carried(epoll_fd, *item, *event);
    // Now the kernel's set must not have it either.
    real().epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, nullptr);
    bury(*item);
    item = nullptr;
  }
  if (wants && operation == EPOLL_CTL_ADD && item == nullptr && !kernels)
    return add(epoll_fd, fd, *event, object);
  if (wants && operation == EPOLL_CTL_MOD && item != nullptr && carried)
    return change_carried(epoll_fd, *item, *event);
  if (wants && item != nullptr) return change(epoll_fd, operation, *item, *event);
  if (operation == EPOLL_CTL_DEL && item != nullptr) return remove(epoll_fd, *item, event);
  return control_kernels(epoll_fd, operation, fd, event, true);
}

// Its own number no longer means it, nor does that of a copy by which it was reached.
void EpollSet::number_is_gone(Item& item) noexcept {
  const int other = another(*item.object, -1);
  if (other < 0 || item.state == Item::State::kRemoved) {
    bury(item);
    return;
  }
  item.alive = other;
  if (item.state == Item::State::kOrphan) return;
  items_.unbind(item);
  item.state = Item::State::kOrphan;
  orphans_.push_back(&item);
}

void EpollSet::closed(int fd) noexcept {
  const Object* object = descriptor_entry(fd).load(std::memory_order_relaxed);
  for (std::size_t i = orphans_.size(); i-- > 0;) {
    Item& orphan = *orphans_[i];
    if (orphan.alive != fd) continue;
    orphan.alive = another(*orphan.object, fd);
    if (orphan.alive < 0) bury(orphan);
  }
  Item* item = items_.of_number(fd);
  if (item == nullptr) return;
  if (item->object.get() != object) {
    number_is_gone(*item);
    return;
  }
  item->alive = another(*object, fd);
  if (item->alive >= 0 && item->state == Item::State::kCurrent) {
    items_.unbind(*item);
    item->state = Item::State::kOrphan;
    orphans_.push_back(item);
    return;
  }
  // A forked child must not change what its parent still has.
  if (!inherited_ && !give_back(*item)) real().epoll_ctl(number(), EPOLL_CTL_DEL, fd, nullptr);
  bury(*item);
}

// Another process may have a copy of what is about to be closed here: the kernel goes on to tell of
// it, by itself from now on. False: what it says is not what the program would hear, or has heard.
bool EpollSet::give_back(const Item& item) noexcept {
  if (item.state != Item::State::kCurrent || item.told_awaiting ||
      (item.told_kind != Kind::kSocket && item.told_kind != Kind::kListener) ||
      item.object.is(Kind::kConnection))
    return false;
  // What has fired once says nothing more, as long as nobody changes it.
  if (item.disabled) return true;
  epoll_event event{.events = item.events, .data = item.data};
  if ((event.events & EPOLLET) != 0 && item.rung_in != 0) return false;
  if ((event.events & (EPOLLET | EPOLLONESHOT)) != 0)
    edges_.fetch_add(1, std::memory_order_relaxed);
  return real().epoll_ctl(number(), EPOLL_CTL_MOD, item.fd, &event) == 0;
}

// It is no longer a connection: only the kernel reports its events.
void EpollSet::dissolved(Item& item, const Reference& socket) noexcept {
  if (std::exchange(item.hot, false)) std::erase(hot_, &item);
  item.leave_bells();
  socket->references.fetch_add(1, std::memory_order_relaxed);  // the caller has one
  item.object = Reference(socket.get());
  item.muted = item.disabled;
  has_sockets_.store(true, std::memory_order_relaxed);
  if (item.state == Item::State::kCurrent) register_in_kernel(number(), EPOLL_CTL_MOD, item);
}

void EpollSet::decided(Item& item) noexcept {
  // What stays the kernel's is registered as it should be, and a change would tell edges again.
  if (!item.told_awaiting && item.told_kind != Kind::kConnection &&
      !item.object.is(Kind::kConnection)) {
    item.told_kind = item.object.kind();
    return;
  }
  // The kernel has no number for an orphan. And an item that has fired once must not fire for this.
  if (item.state == Item::State::kCurrent && (!item.disabled || item.object.is(Kind::kConnection)))
    register_in_kernel(number(), EPOLL_CTL_MOD, item);
  if (item.state != Item::State::kRemoved) heat(item);
}

}  // namespace leat::preload
