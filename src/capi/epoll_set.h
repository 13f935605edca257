// An epoll set that may hold handles of leat/c.h beside the kernel's descriptors.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/spin_budget.h"
#include "capi/pollable.h"

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
  // The last descriptor of that is about to be closed.
  void forget(const Pollable& object) noexcept;

  unsigned mask(bool prepare) override;
  int fd() override { return set_.get(); }
  bool waits_silently(unsigned events) override;
  std::chrono::microseconds spin() const override { return {}; }
  void drain() override;
  posix::EdgeMarks marks() override;

 private:
  struct Entry : posix::EpollInterest {
    std::weak_ptr<Pollable> object;
    std::uint64_t mark = 0;
    bool hot = false;
  };

  // As the kernel keeps them: a number may stand for something new while what it stood for is open.
  using Key = std::pair<int, const Pollable*>;
  using Entries = std::map<Key, std::unique_ptr<Entry>>;

  class Sleeper;

  bool is_mark(std::uint64_t data) const;
  Entries::iterator erase(Entries::iterator entry);
  void heat(Entry& entry);
  void wake();
  unsigned look(Entry& entry, bool prepare, bool report);
  int collect(epoll_event* events, int most, bool prepare);
  int sort(epoll_event* events, int count);
  bool spin_once();
  std::chrono::microseconds spin_time();

  // Marks begin with this, as no address or small number does.
  const std::uint64_t marks_begin_;
  const Fd set_;   // the same set, once more
  const Fd news_;  // wakes the waiters when an entry was added or changed

  SpinBudget spin_budget_;

  std::mutex mutex_;  // all below
  int waiters_ = 0;   // threads that sleep, or are about to
  Entries entries_;
  std::unordered_map<std::uint64_t, Entry*> marks_;
  std::uint64_t next_mark_;
  std::vector<Entry*> hot_;
  bool silent_ = false;  // a hot entry waits for what gives no event
  std::uint64_t arrivals_ = 0;
  bool was_ready_ = false;
};

}  // namespace leat::detail::c
