#include "preload/kept_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <new>

#include "base/spin_lock.h"
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

// The last ones; taken from the end, where they are warm.
class Shelf {
 public:
  void put(const Kept& kept) {
    Kept oldest;
    {
      const std::lock_guard guard(lock_);
      if (count_ == kMostKept) {
        oldest = kept_[0];
        for (std::size_t i = 1; i < count_; ++i) kept_[i - 1] = kept_[i];
        --count_;
      }
      kept_[count_++] = kept;
    }
    drop(oldest);
  }

  template <typename Fits>
  Kept take(const Fits& fits) {
    const std::lock_guard guard(lock_);
    for (std::size_t i = count_; i-- > 0;) {
      if (!fits(kept_[i])) continue;
      const Kept found = kept_[i];
      for (std::size_t k = i + 1; k < count_; ++k) kept_[k - 1] = kept_[k];
      --count_;
      return found;
    }
    return {};
  }

  // In a forked child, where nobody else holds the lock.
  void clear() {
    // What a thread of the parent was changing just now is left as it is.
    const std::size_t count = lock_.try_lock() ? count_ : 0;
    for (std::size_t i = 0; i < count; ++i) drop(kept_[i]);
    count_ = 0;
    lock_.unlock();
  }

 private:
  detail::SpinLock lock_;
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
  if (kept.memfd < 0 || !was_short(*kept.memory) || getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
      limit.rlim_cur < kLeastDescriptors)
    return false;
  // Unless a child uses it by now.
  std::uint32_t user = process_id();
  connection.shown().pid.compare_exchange_strong(user, 0, std::memory_order_relaxed);
  if (connection.side() == 0) {
    const bool ours = object.made_at == memory_generation();
    if (!ours || !connection.peer_has_left()) return false;
    offered.put(kept);
    return true;
  }
  struct stat status {};
  if (fstat(kept.memfd, &status) != 0) return false;
  kept.device = status.st_dev;
  kept.inode = status.st_ino;
  accepted.put(kept);
  return true;
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

void forget_kept_memory() noexcept {
  offered.clear();
  accepted.clear();
}

}  // namespace leat::preload
