// Before and after sleeping at a set of epoll: decides for which of its connections the doorbell is
// rung.
#include "preload/epoll_set.h"

namespace leat::preload {
namespace {

// An item that was not ready in so many sleeps is left to the bell until that rings.
constexpr unsigned kIdleSleeps = 8;

}  // namespace

// Whether somebody would not look again by itself.
bool EpollSet::sleep_elsewhere() const {
  return outside_.load(std::memory_order_relaxed) || asleep_.load(std::memory_order_relaxed) != 0;
}

// Has the bells rung that the item waits for.
void EpollSet::arm(Item& item) const {
  if (item.object.is(Kind::kEpoll)) item.object->set->arm_all();
  if (!item.object.is(Kind::kConnection) || item.disabled) return;
  Connection& connection = item.object->connection;
  const std::uint32_t wanted = item.events & ~Item::kHow;
  const std::uint32_t missing = wanted & ~connection.poll_mask();
  // Data that comes is an edge also while there is some; room is one only after there was none.
  item.bells = connection.arm((missing & EPOLLOUT) | POLLIN, item.bells);
  if ((item.events & EPOLLET) != 0 && (wanted & EPOLLOUT) != 0 && (missing & EPOLLOUT) == 0)
    item.bells = connection.arm_for_next_room(item.bells);
}

// Before sleeping: from now on the doorbell notifies, and for idle items nothing else does. False
// if something has come meanwhile.
bool EpollSet::arm_hot() {
  for (Item* item : hot_) arm(*item);
  for (Item* item : hot_) {
    if (take_ready(*item, false) == 0) continue;
    awake();
    return false;
  }
  std::erase_if(hot_, [](Item* item) {
    // A set has no bell of its own.
    if (item->object.is(Kind::kEpoll) || ++item->idle < kIdleSleeps) return false;
    item->hot = false;
    return true;
  });
  return true;
}

// After sleeping: hot items are looked at again before the next sleep, so they need no doorbell.
void EpollSet::awake() {
  if (sleep_elsewhere()) return;
  for (Item* item : hot_) item->leave_bells();
}

// This thread goes away with events, but others sleep at the set: they get what comes meanwhile,
// and what it may have left.
void EpollSet::hand_over(int epoll_fd) {
  if (asleep_.load(std::memory_order_relaxed) == 0) return;
  for (Item* item : hot_) arm(*item);
  for (Item* item : hot_) {
    if (take_ready(*item, false) == 0 || !item->object.is(Kind::kConnection)) continue;
    register_in_kernel(epoll_fd, EPOLL_CTL_MOD, *item);
    return;  // one thread is woken, and looks at all
  }
}

void EpollSet::arm_all() {
  expect_outside();
  const Hold hold(*this);
  if (hold) arm_hot();
}

}  // namespace leat::preload
