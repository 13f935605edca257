// Sockets in a set of epoll of which it is not decided yet whether they are carried.
#include <algorithm>
#include <mutex>

#include "preload/epoll_set.h"
#include "preload/meeting.h"

namespace leat::preload {

// Decides connections whose handshake has ended.
void EpollSet::settle(const epoll_event* events, int count) const {
  for (int i = 0; i < count; ++i) {
    if ((events[i].data.u64 & ~std::uint64_t{0xffffffff}) != mark_) continue;
    const int fd = static_cast<int>(events[i].data.u64 & 0xffffffff);
    Reference object = find(fd);
    if (object.is_undecided()) decide(fd, object);
  }
}

bool EpollSet::settle_waiting() {
  std::vector<int> waiting;
  std::vector<int> sets;
  {
    const std::lock_guard guard(lock_);
    if (waiting_.empty() && !has_sets_) return false;
    waiting.swap(waiting_);
    for (const Item* item : hot_) {
      if (item->object.is(Kind::kEpoll)) sets.push_back(item->alive);
    }
  }
  bool inside = false;
  for (const int fd : sets) {
    const Reference set = find(fd);
    if (set.is(Kind::kEpoll)) inside |= set->set->settle_waiting();
  }
  std::erase_if(waiting, [](int fd) {
    Reference object = find(fd);
    if (object.awaits_offer()) decide(fd, object);
    return !object.awaits_offer();
  });
  const std::lock_guard guard(lock_);
  waiting_.insert(waiting_.end(), waiting.begin(), waiting.end());
  return inside || !waiting_.empty();
}

}  // namespace leat::preload
