#include "preload/kept_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <new>

#include "preload/end_state.h"
#include "preload/hidden.h"

namespace leat::preload {
namespace {

constexpr std::size_t kMostKept = 16;
// A program that must do with fewer descriptors gets none taken away for this.
constexpr rlim_t kLeastDescriptors = 1024;
constexpr std::uint64_t kShortConnection = 65536;

struct Kept {
  SharedMemory* memory = nullptr;
  int memfd = -1;
  uid_t peer = 0;    // of offered memory
  dev_t device = 0;  // of accepted memory
  ino_t inode = 0;
};

void drop(const Kept& kept) {
  if (kept.memory == nullptr) return;
  munmap(kept.memory, kMemoryBytes);
  close_hidden(kept.memfd);
}

// The last ones; taken from the end, where they are warm. A signal handler may come here, so the
// shelf never waits long for its lock.
class Shelf {
 public:
  // False: it is not kept.
  bool put(const Kept& kept) {
    Kept oldest;
    {
      const Locked locked(lock_, lock_.lock_soon());
      if (!locked) return false;
      if (foreign_) drop_all();
      if (count_ == kMostKept) {
        oldest = kept_[0];
        for (std::size_t i = 1; i < count_; ++i) kept_[i - 1] = kept_[i];
        --count_;
      }
      kept_[count_++] = kept;
    }
    drop(oldest);
    return true;
  }

  template <typename Fits>
  Kept take(const Fits& fits) {
    const Locked locked(lock_, lock_.lock_soon());
    if (locked && foreign_) drop_all();
    for (std::size_t i = locked ? count_ : 0; i-- > 0;) {
      if (!fits(kept_[i])) continue;
      const Kept found = kept_[i];
      for (std::size_t k = i + 1; k < count_; ++k) kept_[k - 1] = kept_[k];
      --count_;
      return found;
    }
    return {};
  }

  void clear() {
    const Locked locked(lock_);
    // A handler that interrupted a change has forked: do it later.
    foreign_ = !locked;
    if (locked) drop_all();
  }

  SignalSafeLock& lock() { return lock_; }

 private:
  void drop_all() {
    foreign_ = false;
    for (std::size_t i = 0; i < count_; ++i) drop(kept_[i]);
    count_ = 0;
  }

  SignalSafeLock lock_;
  bool foreign_ = false;  // what is on it belongs to the parent of this process
  std::size_t count_ = 0;
  std::array<Kept, kMostKept> kept_{};
};

constinit Shelf offered;
constinit Shelf accepted;
std::atomic<std::uint32_t> forks{1};

bool was_short(const SharedMemory& memory) {
  return memory.directions[0].tail.load(std::memory_order_relaxed) <= kShortConnection &&
         memory.directions[1].tail.load(std::memory_order_relaxed) <= kShortConnection;
}

}  // namespace

std::uint32_t memory_generation() noexcept { return forks.load(std::memory_order_relaxed); }

bool keep_memory(Object& object) noexcept {
  const Connection& connection = object.connection;
  Kept kept{connection.memory(), connection.memfd(), object.owner, 0, 0};
  rlimit limit{};
  // Other users, or those of another container, keep what they have had, and could read on.
  if (object.in_folder.load(std::memory_order_relaxed)) return false;
  if (kept.memfd < 0 || !was_short(*kept.memory) || getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
      limit.rlim_cur < kLeastDescriptors)
    return false;
  // Unless a child uses it by now.
  std::uint32_t user = process_id();
  connection.shown().pid.compare_exchange_strong(user, 0, std::memory_order_relaxed);
  if (connection.side() == 0) {
    const bool ours = object.made_at == memory_generation();
    if (!ours || !connection.peer_has_left()) return false;
    return offered.put(kept);
  }
  struct stat status {};
  if (fstat(kept.memfd, &status) != 0) return false;
  kept.device = status.st_dev;
  kept.inode = status.st_ino;
  return accepted.put(kept);
}

SharedMemory* take_kept_memory(uid_t peer, int& memfd) noexcept {
  const Kept kept = offered.take([peer](const Kept& one) { return one.peer == peer; });
  if (kept.memory == nullptr) return nullptr;
  memfd = kept.memfd;
  return new (kept.memory) SharedMemory{};
}

SharedMemory* find_kept_memory(int received, int& memfd) noexcept {
  struct stat status {};
  if (fstat(received, &status) != 0) return nullptr;
  const Kept kept = accepted.take([&status](const Kept& one) {
    return one.inode == status.st_ino && one.device == status.st_dev;
  });
  memfd = kept.memfd;
  return kept.memory;
}

void share_all_memory() noexcept { forks.fetch_add(1, std::memory_order_relaxed); }

SignalSafeLock& lock_of_offered_memory() noexcept { return offered.lock(); }
SignalSafeLock& lock_of_accepted_memory() noexcept { return accepted.lock(); }

void forget_kept_memory() noexcept {
  offered.clear();
  accepted.clear();
}

}  // namespace leat::preload
