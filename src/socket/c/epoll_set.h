// An epoll set that may hold handles of leat/c.h beside the kernel's descriptors.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "socket/c/pollable.h"

namespace leat::detail::c {

// The kernel's set has everything. Its own descriptors are there as the program put them. A handle
// stands there edge-triggered under a mark; what the program gets to see of it is decided here.
// Handles that may have something are `hot`: all that the kernel named, until a look finds nothing.
// Any thread. Results below 0 are -errno.
class EpollSet final : public Pollable {
 public:
  // `number`: the set's descriptor, which the table of descriptors owns.
  explicit EpollSet(int number);

  // `object`: what `fd` stands for; null for the kernel's own.
  int control(int operation, int fd, epoll_event* event, const std::shared_ptr<Pollable>& object);
  long wait(epoll_event* events, int most, Deadline deadline, const sigset_t* signals);
  // The descriptor is about to be closed.
  void forget(int fd) noexcept;

  unsigned mask(bool prepare) override;
  int fd() override { return set_.get(); }
  bool waits_silently(unsigned events) override;
  std::chrono::microseconds spin() const override { return {}; }
  std::uint64_t drain_edges() override;

 private:
  struct Entry {
    std::weak_ptr<Pollable> object;
    int fd = -1;
    std::uint32_t events = 0;
    epoll_data_t data{};
    std::uint64_t seen_edges = 0;
    bool fired = false;  // EPOLLONESHOT: until EPOLL_CTL_MOD
    bool hot = false;
  };

  void heat(Entry& entry);
  void wake();
  unsigned look(Entry& entry, bool prepare, bool report);
  int collect(epoll_event* events, int most, bool prepare);
  int sort(epoll_event* events, int count);
  bool spin_once();
  std::chrono::microseconds spin_time();

  const Fd set_;   // the same set, once more
  const Fd news_;  // wakes who waits when an entry was added or changed
  std::atomic<int> waiters_{0};

  std::mutex mutex_;  // all below
  std::unordered_map<int, std::unique_ptr<Entry>> entries_;
  std::unordered_map<std::uint64_t, Entry*> marks_;
  std::vector<Entry*> hot_;
  bool silent_ = false;  // a hot entry waits for what gives no event
  std::uint64_t edges_ = 0;
  bool was_ready_ = false;
};

}  // namespace leat::detail::c
