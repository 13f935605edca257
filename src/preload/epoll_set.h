// What an epoll descriptor holds, as far as carried connections are among it.
//
// The kernel's own set keeps everything, so that pipes, timers and plain sockets are its business
// alone. A socket that may be or is carried is in it under a mark instead of the program's data; a
// carried one edge-triggered for everything, so that each ring of its doorbell, and each epoll_ctl,
// wakes who sleeps there. What the program then gets to see is decided here, from the connection.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/spin_lock.h"
#include "preload/descriptors.h"

namespace leat::preload {

// Threads: any.
class EpollSet {
 public:
  explicit EpollSet(int fd);
  ~EpollSet();
  EpollSet(const EpollSet&) = delete;
  EpollSet& operator=(const EpollSet&) = delete;

  // epoll_ctl(2) for a descriptor that find() knows.
  int control(int epoll_fd, int operation, int fd, epoll_event* event, Reference& object);
  // The program is about to add or change one that is none of ours.
  void note_native(const epoll_event* event);
  // As epoll_pwait2(2). A cancellation point.
  int wait(int epoll_fd, epoll_event* events, int most, const timespec* timeout,
           const sigset_t* mask);

  // The program closed a descriptor. If a copy is open, what was added with it stays.
  void closed(int epoll_fd, int fd);
  // It is decided now whether the socket is carried.
  void decided(int epoll_fd, const Object* object);
  bool empty();

  // Looks for offers that were late. Whether some still have not come: nothing wakes who waits for
  // them, so look again soon.
  bool settle_waiting();
  // For a set within a set, or within poll(): whether it would be readable; arming before sleeping.
  bool ready(int epoll_fd);
  void arm_all();

  static void socket_is_decided(const Object* object);
  static void descriptor_is_closed(int fd);
  static void after_fork_in_child();

 private:
  struct Item {
    Item() = default;
    ~Item() { leave_bells(); }
    Item(const Item&) = delete;
    Item& operator=(const Item&) = delete;
    void leave_bells();

    int fd = -1;     // it was added with
    int alive = -1;  // one that still means the same: of several, that one may have been closed
    Reference object;
    std::uint32_t events = 0;  // as the program wants, with flags
    epoll_data_t data{};
    bool hot = false;       // looked at in every round, else only the bell tells
    unsigned bells = 0;     // that are rung for it
    unsigned idle = 0;      // how often it was slept at since it was ready
    bool disabled = false;  // EPOLLONESHOT has fired
    std::uint64_t seen_arrivals = 0;
    std::uint32_t seen_full = 0;
    std::uint32_t reported = 0;
    unsigned wakes = 0;
  };

  // Of an item's events, those that are not asked for but say how.
  static constexpr std::uint32_t kFlags = EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP;

  std::uint64_t mark(int fd) const { return mark_ | static_cast<std::uint32_t>(fd); }
  Item* marked(std::uint64_t data);
  int register_in_kernel(int epoll_fd, int operation, Item& item) const;
  static bool bad_exclusive(int operation, const Item* item, const epoll_event& event);
  int change(int epoll_fd, Item& item, const epoll_event& event);
  int remove(int epoll_fd, int fd, epoll_event* event);
  void forget_removed(int epoll_fd, int fd);
  void heat(Item& item);
  void heat_orphans(std::uint64_t data);
  std::uint32_t take_ready(Item& item, bool consume);
  int collect(epoll_event* events, int most);
  int collect_new(epoll_event* events, int most, bool collected);
  int from_kernel(int epoll_fd, epoll_event* events, int count);
  void arm(Item& item) const;
  bool asked_just_now() const;
  bool arm_hot();
  bool sleep_elsewhere() const;
  void awake();
  void hand_over(int epoll_fd);
  int spin(int epoll_fd, epoll_event* events, int most,
           std::chrono::steady_clock::time_point deadline);
  void settle(const epoll_event* events, int count) const;

  bool inherited_ = false;  // the kernel's set is the parent's too
  const std::uint64_t mark_;
  detail::SpinLock lock_;
  using Items = std::unordered_map<int, std::unique_ptr<Item>>;
  Items items_;
  Items removed_;  // by the program; only the kernel's set still has them
  // Those whose own number was closed; the program can neither change nor remove them.
  std::vector<std::unique_ptr<Item>> orphans_;
  bool has_sets_ = false;
  // Who would not look again by itself at what is changed: threads in wait(), or in that of a set
  // around this one or in poll().
  std::atomic<std::uint32_t> asleep_{0};
  bool outside_ = false;
  std::vector<int> waiting_;  // descriptors of accepted sockets whose offers have not come
  std::vector<Item*> hot_;
  std::vector<epoll_event> kept_;  // of the kernel's, found by ready()
  // Whether something in the kernel's own hands is told but once, so that ready() must keep it.
  bool edges_ = false;
  std::chrono::steady_clock::time_point asked_;  // the kernel, last
  std::size_t looked_at_ = 0;                    // how many were hot at the last collect()
  std::size_t next_ = 0;  // where collect() begins, so that all get their turn
};

}  // namespace leat::preload
