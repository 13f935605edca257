// What an epoll descriptor holds, as far as carried connections are among it.
//
// The kernel's own set keeps everything, so that pipes, timers and plain sockets are its business
// alone. A socket that may be or is carried is in it under a mark instead of the program's data; a
// carried one edge-triggered for everything, so that each ring of its doorbell, and each epoll_ctl,
// wakes a thread that sleeps there. What the program then sees is decided here, from the
// connection; for a socket that turned out not to be a connection of leat's, the kernel decides.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <vector>

#include "preload/descriptors.h"
#include "preload/epoll_items.h"
#include "preload/epoll_once.h"
#include "preload/signal_safe_lock.h"

namespace leat::preload {

// Lives as long as its descriptors, and until purge_retired(). Threads: any.
class EpollSet {
 public:
  // `holder` is what its descriptors stand for; `fd` is one of them.
  EpollSet(Object& holder, int fd);
  EpollSet(const EpollSet&) = delete;
  EpollSet& operator=(const EpollSet&) = delete;

  // epoll_ctl(2). `object`: what find() knows of `fd`, perhaps nothing.
  int control(int epoll_fd, int operation, int fd, epoll_event* event, const Reference& object);
  // As epoll_pwait2(2). A cancellation point.
  int wait(int epoll_fd, epoll_event* events, int most, const timespec* timeout,
           const sigset_t* mask);

  // Whether it has never held anything but what is the kernel's alone.
  bool unused() const noexcept { return !used_.load(std::memory_order_acquire); }

  // Looks for offers that were late. Whether some still have not come: nothing wakes a thread that
  // waits for them, so look again soon. `depth`: of sets around this one.
  bool settle_waiting(unsigned depth = 0);
  // For a set within a set, or within poll(): whether it would be readable; arming before sleeping.
  bool ready();
  void arm_all();
  // The same as arm_all() as long as it is unused.
  void expect_outside() noexcept { outside_.store(true, std::memory_order_relaxed); }

  // It is decided now whether the socket of that descriptor is carried.
  static void socket_is_decided(int fd, const Object* object);
  // connect() has dissolved a carried connection: its descriptors mean a socket as new.
  static void connection_is_dissolved(const Object* connection, const Reference& socket);
  // The program closes a descriptor. If a copy is open, what was added with it stays. For signal
  // handlers too: waits for no lock for long, and neither allocates nor frees memory. False: some
  // set could not be told, so call note_missed() once the descriptor is forgotten.
  static bool descriptor_is_closed(int fd) noexcept;
  // The next user of a set, or one of now, looks for what it has missed.
  static void note_missed() noexcept;

  // For a program that is executed: a hidden descriptor of memory that says what this is, or -1.
  // Calls no malloc.
  int tell() noexcept;
  // In that program, before any thread uses it: reads what was told.
  void learn(const void* memory);

  // Its last reference is gone. It only lets go of what it holds, as a signal handler may close it.
  void retire() noexcept;
  // Frees those, but not in a handler that interrupted the like.
  static void purge_retired();

  // As of SignalSafeLock, for all sets. And in the child, before it lets go.
  static bool try_hold_for_fork() noexcept;
  static void let_go_after_fork() noexcept;
  static void note_forked() noexcept;

 private:
  using Item = EpollItem;
  class Hold;

  ~EpollSet() = default;
  bool lock() noexcept;
  bool lock_soon() noexcept;
  void unlock() noexcept;
  void inherit() noexcept;
  void catch_up() noexcept;
  Reference hold() const noexcept;
  int number() noexcept;
  template <typename Visit>
  static bool for_each_used(const Visit& visit);

  void closed(int fd) noexcept;
  bool give_back(const Item& item) noexcept;
  void number_is_gone(Item& item) noexcept;
  void decided(Item& item) noexcept;
  void dissolved(Item& item, const Reference& socket) noexcept;
  void bury(Item& item) noexcept;
  void drop_kept(const Item& item) noexcept;

  int register_in_kernel(int epoll_fd, int operation, Item& item) const noexcept;
  static void want(Item& item, const epoll_event& event);
  int add(int epoll_fd, int fd, const epoll_event& event, const Reference& object);
  int change(int epoll_fd, int operation, Item& item, const epoll_event& event);
  int change_carried(int epoll_fd, Item& item, const epoll_event& event);
  int remove(int epoll_fd, Item& item, epoll_event* event);
  int control_kernels(int epoll_fd, int operation, int fd, epoll_event* event, bool locked);
  void heat(Item& item) noexcept;
  std::uint32_t take_ready(Item& item, bool consume) const;
  int tell(Item& item, epoll_event* to);
  int collect(epoll_event* events, int most);
  int collect_rung(epoll_event* events, int most);
  int from_kernel(int epoll_fd, epoll_event* events, int count);
  bool tell_again(int epoll_fd, epoll_data_t data, std::uint32_t got);
  bool look_in_kernel(int epoll_fd);
  void forget_number(int epoll_fd) const noexcept;
  static bool pass(Item& item, std::uint32_t got, epoll_event& to);
  bool ring(Item& item, std::uint32_t got) const;
  void arm(Item& item) const;
  bool asked_just_now() const;
  bool arm_hot();
  bool sleep_elsewhere() const;
  void awake();
  void hand_over(int epoll_fd);
  int spin(int epoll_fd, epoll_event* events, int most,
           std::chrono::steady_clock::time_point deadline);
  int woken(int epoll_fd, epoll_event* events, int got, int most);
  bool any_mark(const epoll_event* events, int count) const;
  void settle(const epoll_event* events, int count);

  Object* const holder_;
  std::atomic<int> fd_;
  EpollSet* next_ = nullptr;          // of all sets
  std::atomic<bool> retired_{false};  // only to be freed
  // How many of the changes that other threads left to this set, and of the forks, catch_up() has
  // made up for.
  std::atomic<std::uint32_t> caught_up_;
  std::atomic<std::uint32_t> forks_;
  bool inherited_ = false;  // the kernel's set is the parent's too

  SignalSafeLock lock_;
  EpollItems items_;
  std::atomic<bool> used_{false};
  std::atomic<bool> has_sets_{false};     // or had some
  std::atomic<bool> has_sockets_{false};  // that may become connections, or had some
  // Threads that would not look again by themselves at what is changed: those in wait(), or in that
  // of a set around this one or in poll().
  std::atomic<std::uint32_t> asleep_{0};
  std::atomic<bool> outside_{false};
  // Lists of items. Each has room for every item, so that adding one never allocates.
  std::vector<Item*> hot_;
  std::vector<Item*> orphans_;
  std::vector<Item*> waiting_;  // accepted sockets whose offers have not come
  std::atomic<bool> any_waiting_{false};
  // Events that ready() has found and the kernel does not repeat, each with the data under which
  // the kernel gave it: a mark if it is ours.
  struct Kept {
    epoll_event event;
    epoll_data_t given;
  };
  std::vector<Kept> kept_;
  // What the kernel alone watches and reports only once, and how much more of that there is than is
  // known.
  EpollOnce once_;
  std::atomic<bool> once_outdated_{false};
  std::atomic<std::uint32_t> edges_{0};
  std::chrono::steady_clock::time_point asked_;  // the kernel, last
  std::uint64_t round_ = 1;   // of collecting for the program, or of asking the kernel
  std::size_t next_hot_ = 0;  // where collect() begins, so that all get their turn
};

// Holds the lock of a set for a scope, once this thread may: not in a signal handler that
// interrupted its holder.
class EpollSet::Hold {
 public:
  explicit Hold(EpollSet& set) noexcept : set_(set.lock() ? &set : nullptr) {}
  ~Hold() {
    if (set_ != nullptr) set_->unlock();
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  explicit operator bool() const noexcept { return set_ != nullptr; }

 private:
  EpollSet* set_;
};

// epoll_pwait2(2), by epoll_pwait(2) where the kernel or the C library lacks it. A cancellation
// point.
int wait_in_kernel(int epoll_fd, epoll_event* events, int most, const timespec* timeout,
                   const sigset_t* mask);

}  // namespace leat::preload
