#include "preload/polling.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <vector>

#include "posix/select_sets.h"
#include "posix/times.h"
#include "preload/epoll_passing.h"
#include "preload/epoll_set.h"
#include "preload/listening.h"
#include "preload/meeting.h"
#include "preload/real.h"
#include "preload/waiting.h"

namespace leat::preload {
namespace {

using posix::Clock;
using posix::Deadline;
using posix::kNoDeadline;
using posix::to_timespec;

constexpr unsigned kAlways = POLLERR | POLLHUP | POLLNVAL;

// Those of the caller's descriptors that the kernel cannot answer for.
struct Ours {
  std::size_t index;
  Reference object;
  short events;
  bool quiet = false;  // the kernel was asked after the peer's end: it has nothing new to tell
};

class Poll {
 public:
  // `selects`: for select(), which takes what is closed while it waits for ready.
  Poll(pollfd* fds, nfds_t count, bool selects) : fds_(fds), count_(count), selects_(selects) {
    for (nfds_t i = 0; i < count; ++i) {
      Reference object = find_current(fds[i].fd);
      if (object.is_undecided()) decide(fds[i].fd, object);
      // Of several numbers of a set one may mean another file without a name; the kernel refuses to
      // wait there only if it is the one that is asked by.
      if (object.is(Kind::kEpoll) && object->numbers.load(std::memory_order_relaxed) > 1 &&
          !is_set(fds[i].fd)) {
        forget_lost(fds[i].fd, *object);
        continue;
      }
      if (object.is(Kind::kConnection) || object.is(Kind::kSocket) || object.is(Kind::kEpoll))
        ours_.push_back({i, std::move(object), fds[i].events});
    }
  }

  bool nothing_ours() const { return ours_.empty(); }
  // Whether the kernel can answer for all of them: for sets too, until something of ours is added.
  bool kernel_answers() const {
    return std::all_of(ours_.begin(), ours_.end(), [](const Ours& one) {
      return one.object.is(Kind::kEpoll) && one.object->set->unused();
    });
  }
  // Before that: what is added meanwhile to such a set must wake the kernel's poll.
  void expect_to_be_woken() const {
    for (const Ours& one : ours_) one.object->set->expect_outside();
  }

  int run(const timespec* timeout, const sigset_t* mask);

 private:
  short answer(const Ours& one) const;
  int ready_now();
  bool all_answered_here() const;
  bool is_kernel_due() const;
  void ask_kernel_for_rings(std::vector<pollfd>& asked) const;
  int sleep(const timespec* left, const sigset_t* mask);
  bool spin(Deadline deadline);

  pollfd* fds_;
  nfds_t count_;
  bool selects_;
  std::vector<Ours> ours_;
  bool interrupted_ = false;
  bool waiting_ = false;  // a set of epoll waits for an offer
};

short Poll::answer(const Ours& one) const {
  unsigned mask = 0;
  const int fd = fds_[one.index].fd;
  if (one.object.is(Kind::kConnection)) mask = one.object->connection.poll_mask(fd);
  if (one.object.is(Kind::kEpoll) && one.object->set->ready() && means(fd, *one.object))
    mask = POLLIN | POLLRDNORM;
  return static_cast<short>(mask & (static_cast<unsigned short>(one.events) | kAlways));
}

// Fills revents of those that are ours. How many are ready.
int Poll::ready_now() {
  int ready = 0;
  for (const Ours& one : ours_) {
    fds_[one.index].revents = answer(one);
    if (fds_[one.index].revents != 0) ++ready;
  }
  return ready;
}

// Whether the kernel need not be asked once one is ready.
bool Poll::all_answered_here() const {
  return std::all_of(ours_.begin(), ours_.end(), [](const Ours& one) {
    return one.object.is(Kind::kConnection) && (one.events & POLLPRI) == 0;
  });
}

// Whether it must be asked even so: of some ends it alone knows.
bool Poll::is_kernel_due() const {
  bool due = false;
  for (const Ours& one : ours_)
    due |= one.object.is(Kind::kConnection) && one.object->connection.is_to_be_asked();
  return due;
}

bool Poll::spin(Deadline deadline) {
  const bool any = std::any_of(ours_.begin(), ours_.end(),
                               [](const Ours& one) { return one.object.is(Kind::kConnection); });
  Spin spin;
  while (any && spin.again()) {
    if (ready_now() != 0) {
      spin.found();
      return true;
    }
    if (spin.look_further() && Clock::now() >= deadline) break;
    if (spin.look_further() && count_ > ours_.size()) {
      std::vector<pollfd> asked;
      ask_kernel_for_rings(asked);
      for (const Ours& one : ours_) asked[one.index].fd = -1;
      if (real().poll(asked.data(), count_, 0) > 0) return true;
    }
  }
  interrupted_ = spin.signal() != SignalWatch::Came::kNothing;
  return false;
}

// What the kernel is asked instead of what the program asked: of a carried socket only its bell.
void Poll::ask_kernel_for_rings(std::vector<pollfd>& asked) const {
  asked.assign(fds_, fds_ + count_);
  for (const Ours& one : ours_) {
    // As if there were no room yet.
    if (one.object.awaits_offer())
      asked[one.index].events = static_cast<short>(one.events & ~(POLLOUT | POLLWRNORM));
    if (!one.object.is(Kind::kConnection)) continue;
    if (one.quiet) asked[one.index].fd = -1;
    const int bell = one.object->connection.bell_rings() ? POLLIN | POLLRDHUP : 0;
    asked[one.index].events = static_cast<short>(bell | (one.events & POLLPRI));
  }
}

// One sleep in the kernel, and what it brought. As ppoll; 0 also if only the bell rang.
int Poll::sleep(const timespec* left, const sigset_t* mask) {
  std::vector<pollfd> asked;
  ask_kernel_for_rings(asked);
  std::vector<Listening> listening;
  std::vector<Asleep> asleep;
  listening.reserve(ours_.size());
  asleep.reserve(ours_.size());
  bool alone = !waiting_;
  bool at_once = posix::is_zero(left);
  for (const Ours& one : ours_) {
    if (one.object.is(Kind::kEpoll) && !at_once) one.object->set->arm_all();
    alone &= !one.object.awaits_offer();
    // One for each, as another thread may decide meanwhile what is a connection.
    const bool hears = one.object.is(Kind::kConnection) && !at_once;
    listening.emplace_back(hears ? &one.object->connection.own() : nullptr);
    if (!hears) continue;
    Connection& connection = one.object->connection;
    alone &= listening.back().ours() && connection.bell_rings() && !one.quiet;
    asleep.emplace_back(connection, static_cast<unsigned short>(one.events) | POLLRDHUP);
  }
  timespec time = left != nullptr ? *left : timespec{};
  const timespec* limit = left;
  if (ready_now() != 0) {
    time = {};
    limit = &time;
  } else if (!alone && (left == nullptr || left->tv_sec > 0 ||
                        left->tv_nsec > std::chrono::nanoseconds(kNap).count())) {
    // Another hears the bell of one of these, or nobody does, or an offer is to come.
    time = to_timespec(kNap);
    limit = &time;
  }
  int woken = real().ppoll(asked.data(), count_, limit, mask);
  if (woken < 0) return -1;
  for (nfds_t i = 0; i < count_; ++i) fds_[i].revents = asked[i].revents;
  for (std::size_t i = 0; i < ours_.size(); ++i) {
    Ours& one = ours_[i];
    const int fd = fds_[one.index].fd;
    const short rung = asked[one.index].revents;
    if ((rung & POLLNVAL) != 0) {
      // Another thread has closed it.
      fds_[one.index].revents = selects_ ? one.events : POLLNVAL;
      continue;
    }
    if (one.object.is(Kind::kSocket)) {
      // The handshake ended while we slept: decide before the program hears of it.
      if (one.object.awaits_offer() || (rung != 0 && one.object.is_undecided()))
        decide(fd, one.object);
      if (one.object.awaits_offer()) fds_[one.index].revents = 0;
      if (!one.object.is(Kind::kConnection)) continue;
    } else if (one.object.is(Kind::kConnection)) {
      const bool ours = listening[i].ours();
      if ((rung & ~POLLPRI) != 0 || !one.object->connection.bell_rings()) {
        one.object->connection.look_at_kernel(fd, ours);
        // Bytes, then the end.
        if ((rung & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
          one.object->connection.look_at_kernel(fd, ours);
      }
      one.quiet |= one.object->connection.is_peer_gone();
    }
    const short answered = answer(one);
    // What no set of epoll says, as its number may mean another of the kernel's files without a
    // name: it was closed out of our sight. If that is known by now, the kernel's answer is whole.
    int only_kernel = POLLPRI;
    if (one.object.is(Kind::kEpoll))
      only_kernel = means(fd, *one.object) ? ~(POLLIN | POLLRDNORM) : ~0;
    fds_[one.index].revents = static_cast<short>(answered | (rung & one.events & only_kernel));
  }
  int ready = 0;
  for (nfds_t i = 0; i < count_; ++i) ready += fds_[i].revents != 0 ? 1 : 0;
  return ready;
}

int Poll::run(const timespec* timeout, const sigset_t* mask) {
  const Deadline deadline = posix::deadline_of(timeout);
  const bool at_once = posix::is_zero(timeout);
  bool found = !at_once && ready_now() != 0;
  if (!at_once && !found && mask == nullptr) found = spin(deadline);
  if (interrupted_) return fail(EINTR);
  for (;;) {
    for (const Ours& one : ours_) {
      if (one.object.is(Kind::kEpoll)) waiting_ |= one.object->set->settle_waiting();
    }
    if (found && ours_.size() == count_ && all_answered_here() && !is_kernel_due())
      return ready_now();
    const timespec left = found ? timespec{} : posix::time_left(deadline);
    const int ready = sleep(found || deadline != kNoDeadline ? &left : nullptr, mask);
    if (ready != 0 || at_once) return ready;
    if (!found && Clock::now() >= deadline) return 0;
    found = false;
  }
}

}  // namespace

int poll_all(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask,
             bool selects) {
  if (!posix::is_time(timeout)) return fail(EINVAL);
  if (highest_known() < 0) return real().ppoll(fds, count, timeout, mask);
  Poll poll(fds, count, selects);
  if (poll.nothing_ours()) return real().ppoll(fds, count, timeout, mask);
  if (!poll.kernel_answers()) return poll.run(timeout, mask);
  poll.expect_to_be_woken();
  const Deadline deadline = posix::deadline_of(timeout);
  const int ready = real().ppoll(fds, count, timeout, mask);
  if (ready <= 0 || poll.kernel_answers()) return ready;
  // Something of ours was added: the kernel does not know whether that is ready.
  const timespec left = posix::time_left(deadline);
  return poll.run(deadline != kNoDeadline ? &left : nullptr, mask);
}

int select_all(int count, fd_set* reads, fd_set* writes, fd_set* excepts, timespec* timeout,
               const sigset_t* mask) {
  const bool ends = timeout != nullptr && posix::is_time(timeout);
  const Deadline deadline = ends ? posix::deadline_of(timeout) : kNoDeadline;
  posix::SelectSets sets(count, reads, writes, excepts);
  return static_cast<int>(result_of(sets.select([&](std::span<pollfd> fds) {
    const int ready = poll_all(fds.data(), fds.size(), timeout, mask, true);
    // Also where a signal ended it: programs go on with what is left.
    if (deadline != kNoDeadline) *timeout = posix::time_left(deadline);
    return ready < 0 ? -errno : ready;
  })));
}

}  // namespace leat::preload
