// All sets of epoll, for the two events that concern every one: the close of a descriptor, and
// fork().
#include <algorithm>
#include <utility>

#include "preload/end_state.h"
#include "preload/epoll_set.h"
#include "preload/forking.h"

namespace leat::preload {
namespace {

constinit SignalSafeLock registry_lock;
bool registry_held = false;  // by the one thread that forks, so that it may walk
// Linked so that it can be walked at any moment by a handler that interrupted the lock's owner.
std::atomic<EpollSet*> first_set{nullptr};
std::atomic<unsigned> retired_sets{0};

// Count the news that a set missed because its lock could not be taken, and forks. Every set looks
// at these when it is locked and after it is unlocked.
std::atomic<std::uint32_t> missed{0};
std::atomic<std::uint32_t> fork_count{0};

// For a walk over all sets that must not wait for ever.
class Walk {
 public:
  Walk() noexcept
      : ours_(registry_lock.lock_soon()), allowed_(ours_ || registry_lock.held_here()) {}
  ~Walk() {
    if (ours_) registry_lock.unlock();
  }
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;
  // False: other threads may be freeing sets.
  bool allowed() const noexcept { return allowed_; }

 private:
  const bool ours_;
  const bool allowed_;
};

}  // namespace

EpollSet::EpollSet(Object& holder, int fd)
    : holder_(&holder),
      fd_(fd),
      caught_up_(missed.load(std::memory_order_relaxed)),
      forks_(fork_count.load(std::memory_order_relaxed)) {
  // Also if a handler makes it that interrupted the owner.
  const Locked locked(registry_lock);
  next_ = first_set.load(std::memory_order_relaxed);
  // Release: a thread that finds the set sees its fields.
  while (!first_set.compare_exchange_weak(next_, this, std::memory_order_release,
                                          std::memory_order_relaxed)) {
  }
}

// A reference that keeps it alive, if it is not retired already.
Reference EpollSet::hold() const noexcept {
  std::uint32_t count = holder_->references.load(std::memory_order_relaxed);
  // As acquire() in descriptors.cc: the memory of objects is never given back.
  while (count != 0 &&
         !holder_->references.compare_exchange_weak(count, count + 1, std::memory_order_acq_rel)) {
  }
  if (count == 0) return {};
  Reference reference(holder_);
  // It may stand for something else by now.
  if (!reference.is(Kind::kEpoll) || reference->set != this) return {};
  return reference;
}

// A descriptor that means it, or -1.
int EpollSet::number() noexcept {
  const int known = fd_.load(std::memory_order_relaxed);
  if (means(known, *holder_)) return known;
  const int other = another(*holder_, -1);
  if (other >= 0) fd_.store(other, std::memory_order_relaxed);
  return other;
}

bool EpollSet::lock() noexcept {
  let_forking_threads_first();
  if (!lock_.lock()) return false;
  if (caught_up_.load(std::memory_order_relaxed) != missed.load(std::memory_order_relaxed))
      [[unlikely]]
    catch_up();
  return true;
}

bool EpollSet::lock_soon() noexcept {
  if (!lock_.lock_soon()) return false;
  if (caught_up_.load(std::memory_order_relaxed) != missed.load(std::memory_order_relaxed))
      [[unlikely]]
    catch_up();
  return true;
}

void EpollSet::unlock() noexcept {
  lock_.unlock();
  // What a handler left to this thread, or another thread that lost patience. If it is not seen
  // here yet, then when the set is used next.
  while (caught_up_.load(std::memory_order_relaxed) != missed.load(std::memory_order_relaxed))
    [[unlikely]] {
      if (!lock_.lock_soon()) return;
      catch_up();
      lock_.unlock();
    }
}

// In a child whose parent has the set too.
void EpollSet::inherit() noexcept {
  const std::uint32_t now = fork_count.load(std::memory_order_relaxed);
  if (forks_.exchange(now, std::memory_order_relaxed) == now) return;
  inherited_ = true;
  items_.become_copy(process_id());
  // The parent is counted in, not its child.
  items_.for_each([](Item& item) { item.bells = 0; });
}

// Looks at everything for what this set has missed.
void EpollSet::catch_up() noexcept {
  caught_up_.store(missed.load(std::memory_order_acquire), std::memory_order_relaxed);
  inherit();
  items_.for_each([this](Item& item) {
    if (!means(item.state == Item::State::kOrphan ? item.alive : item.fd, *item.object)) {
      number_is_gone(item);
    } else if (item.state == Item::State::kCurrent &&
               (item.told_kind != item.object.kind() ||
                item.told_awaiting != item.object.awaits_offer())) {
      decided(item);
    }
  });
}

// Calls `visit(set)` for each that may hold something of ours, with its lock. False: not for all.
template <typename Visit>
bool EpollSet::for_each_used(const Visit& visit) {
  const Walk walk;
  if (!walk.allowed()) return false;
  bool all = true;
  for (EpollSet* set = first_set.load(std::memory_order_acquire); set != nullptr;
       set = set->next_) {
    if (set->unused()) continue;
    const Reference holder = set->hold();
    if (!holder) continue;
    if (set->lock_soon()) {
      visit(*set);
      set->unlock();
    } else {
      all = false;
    }
  }
  return all;
}

void EpollSet::socket_is_decided(int fd, const Object* object) {
  const bool all = for_each_used([=](EpollSet& set) {
    const int numbers = object->numbers.load(std::memory_order_relaxed);
    if (Item* item = set.items_.of_number(fd); numbers == 1 && set.orphans_.empty()) {
      if (item != nullptr && item->object.get() == object) set.decided(*item);
    } else {
      set.items_.for_each([&](Item& one) {
        if (one.object.get() == object) set.decided(one);
      });
    }
  });
  if (!all) note_missed();
}

void EpollSet::connection_is_dissolved(const Object* connection, const Reference& socket) {
  const bool all = for_each_used([&](EpollSet& set) {
    set.items_.for_each([&](Item& one) {
      if (one.object.get() == connection) set.dissolved(one, socket);
    });
  });
  if (!all) note_missed();
}

// Release, and acquire in catch_up(): that sees what was done before.
void EpollSet::note_missed() noexcept { missed.fetch_add(1, std::memory_order_release); }

bool EpollSet::descriptor_is_closed(int fd) noexcept {
  return for_each_used([=](EpollSet& set) { set.closed(fd); });
}

void EpollSet::retire() noexcept {
  // Nobody holds the lock, as that takes a reference, but perhaps a thread that forks.
  inherit();
  items_.for_each([this](Item& item) { items_.bury(item); });
  hot_.clear();
  orphans_.clear();
  waiting_.clear();
  // Counted first: purge_retired() counts down what it finds.
  retired_sets.fetch_add(1, std::memory_order_relaxed);
  retired_.store(true, std::memory_order_release);
}

void EpollSet::purge_retired() {
  if (retired_sets.load(std::memory_order_relaxed) == 0) return;
  EpollSet* retired = nullptr;
  {
    const Locked locked(registry_lock);
    if (!locked) return;
    EpollSet* before = nullptr;
    // False: a handler has put another set in front of it; it is unlinked next time.
    const auto unlink = [&before](EpollSet* set) {
      EpollSet* expected = set;
      if (before == nullptr)
        return first_set.compare_exchange_strong(expected, set->next_, std::memory_order_relaxed);
      before->next_ = set->next_;
      return true;
    };
    for (EpollSet* set = first_set.load(std::memory_order_acquire); set != nullptr;) {
      EpollSet* next = set->next_;
      if (set->retired_.load(std::memory_order_acquire) && unlink(set)) {
        // In this order also for a handler that walks the list just now.
        std::atomic_signal_fence(std::memory_order_seq_cst);
        set->next_ = std::exchange(retired, set);
      } else {
        before = set;
      }
      set = next;
    }
  }
  while (retired != nullptr) {
    delete std::exchange(retired, retired->next_);
    retired_sets.fetch_sub(1, std::memory_order_relaxed);
  }
}

bool EpollSet::try_hold_for_fork() noexcept {
  registry_held = registry_lock.try_hold_for_fork();
  if (!registry_held) return false;
  for (EpollSet* set = first_set.load(std::memory_order_acquire); set != nullptr;
       set = set->next_) {
    if (!set->lock_.try_hold_for_fork()) return false;
  }
  return true;
}

void EpollSet::let_go_after_fork() noexcept {
  if (!std::exchange(registry_held, false)) return;
  for (EpollSet* set = first_set.load(std::memory_order_acquire); set != nullptr; set = set->next_)
    set->lock_.let_go_after_fork();
  registry_lock.let_go_after_fork();
}

void EpollSet::note_forked() noexcept {
  fork_count.fetch_add(1, std::memory_order_relaxed);
  note_missed();
}

}  // namespace leat::preload
