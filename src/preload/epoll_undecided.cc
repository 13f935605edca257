// Sockets in a set of epoll that may or may not be carried: that is not decided yet.
#include <algorithm>
#include <utility>
#include <vector>

#include "preload/epoll_set.h"
#include "preload/meeting.h"

namespace leat::preload {
namespace {

// The kernel lets sets be within sets no deeper.
constexpr unsigned kDeepest = 5;

// A descriptor, and what it stood for.
using Undecided = std::pair<int, const Object*>;

// Without the set's lock, as this tells all sets. Unless the number means another by now.
void decide(const Undecided& undecided) {
  Reference object = find(undecided.first);
  if (object.get() == undecided.second && object.is_undecided()) decide(undecided.first, object);
}

}  // namespace

// Decides connections whose handshake has ended.
void EpollSet::settle(const epoll_event* events, int count) {
  if (count <= 0 || !has_sockets_.load(std::memory_order_relaxed)) return;
  std::vector<Undecided> undecided;
  {
    const Hold hold(*this);
    for (int i = 0; hold && i < count; ++i) {
      const Item* item = items_.of_mark(events[i].data);
      if (item != nullptr && item->object.is_undecided())
        undecided.emplace_back(item->alive, item->object.get());
    }
  }
  for (const Undecided& one : undecided) decide(one);
}

bool EpollSet::settle_waiting(unsigned depth) {
  const bool any_waiting = any_waiting_.load(std::memory_order_relaxed);
  if (!any_waiting && !has_sets_.load(std::memory_order_relaxed)) return false;
  std::vector<Undecided> waiting;
  std::vector<Reference> sets;
  {
    const Hold hold(*this);
    if (!hold) return false;
    for (const Item* item : waiting_) waiting.emplace_back(item->alive, item->object.get());
    for (const Item* item : hot_) {
      if (!item->object.is(Kind::kEpoll) || depth == kDeepest) continue;
      item->object->references.fetch_add(1, std::memory_order_relaxed);  // the item has one
      sets.emplace_back(item->object.get());
    }
  }
  bool inside = false;
  for (const Reference& set : sets) inside |= set->set->settle_waiting(depth + 1);
  if (!any_waiting) return inside;
  for (const Undecided& one : waiting) decide(one);
  const Hold hold(*this);
  if (!hold) return true;
  std::erase_if(waiting_, [](const Item* item) { return !item->object.awaits_offer(); });
  any_waiting_.store(!waiting_.empty(), std::memory_order_relaxed);
  return inside || !waiting_.empty();
}

}  // namespace leat::preload
