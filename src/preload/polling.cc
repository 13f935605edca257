#include "preload/polling.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <vector>

#include "base/select_sets.h"
#include "preload/epoll_set.h"
#include "preload/listening.h"
#include "preload/meeting.h"
#include "preload/real.h"
#include "preload/waiting.h"

namespace leat::preload {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr auto kNap = std::chrono::milliseconds(10);
constexpr unsigned kAlways = POLLERR | POLLHUP | POLLNVAL;

timespec to_timespec(nanoseconds time) {
  return {.tv_sec = time.count() / 1'000'000'000, .tv_nsec = time.count() % 1'000'000'000};
}

// Those of the caller's descriptors that the kernel cannot answer for.
struct Ours {
  std::size_t index;
  Reference object;
  short events;
  bool quiet = false;  // the kernel was asked after the peer's end: it has nothing new to tell
};

class Poll {
 public:
  Poll(pollfd* fds, nfds_t count) : fds_(fds), count_(count) {
    for (nfds_t i = 0; i < count; ++i) {
      Reference object = find_current(fds[i].fd);
      if (object.is_undecided()) decide(fds[i].fd, object);
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
  void ask_kernel_for_rings(std::vector<pollfd>& asked) const;
  int sleep(const timespec* left, const sigset_t* mask);
  bool spin(Clock::time_point deadline);

  pollfd* fds_;
  nfds_t count_;
  std::vector<Ours> ours_;
  bool interrupted_ = false;
  bool waiting_ = false;  // a set of epoll waits for an offer
};

short Poll::answer(const Ours& one) const {
  unsigned mask = 0;
  if (one.object.is(Kind::kConnection)) mask = one.object->connection.poll_mask(fds_[one.index].fd);
  if (one.object.is(Kind::kEpoll) && one.object->set->ready()) mask = POLLIN | POLLRDNORM;
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

bool Poll::spin(Clock::time_point deadline) {
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
  bool at_once = left != nullptr && left->tv_sec == 0 && left->tv_nsec == 0;
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
  } else if (!alone &&
             (left == nullptr || left->tv_sec > 0 || left->tv_nsec > nanoseconds(kNap).count())) {
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
    // What no set of epoll is: closed out of our sight, its number means another of the kernel's
    // files without a name.
    const int only_kernel = one.object.is(Kind::kEpoll) ? ~(POLLIN | POLLRDNORM) : POLLPRI;
    fds_[one.index].revents = static_cast<short>(answer(one) | (rung & one.events & only_kernel));
  }
  int ready = 0;
  for (nfds_t i = 0; i < count_; ++i) ready += fds_[i].revents != 0 ? 1 : 0;
  return ready;
}

int Poll::run(const timespec* timeout, const sigset_t* mask) {
  auto deadline = Clock::time_point::max();
  if (timeout != nullptr && timeout->tv_sec < 1'000'000'000)
    deadline = Clock::now() + std::chrono::seconds(timeout->tv_sec) + nanoseconds(timeout->tv_nsec);
  const bool at_once = timeout != nullptr && timeout->tv_sec == 0 && timeout->tv_nsec == 0;
  bool found = !at_once && ready_now() != 0;
  if (!at_once && !found && mask == nullptr) found = spin(deadline);
  if (interrupted_) {
    errno = EINTR;
    return -1;
  }
  for (;;) {
    for (const Ours& one : ours_) {
      if (one.object.is(Kind::kEpoll)) waiting_ |= one.object->set->settle_waiting();
    }
    if (found && ours_.size() == count_ && all_answered_here()) return ready_now();
    timespec left{};
    if (deadline != Clock::time_point::max() && !found)
      left = to_timespec(std::max(nanoseconds(0), nanoseconds(deadline - Clock::now())));
    const int ready = sleep(found || deadline != Clock::time_point::max() ? &left : nullptr, mask);
    if (ready != 0 || at_once) return ready;
    if (!found && Clock::now() >= deadline) return 0;
    found = false;
  }
}

}  // namespace

bool is_bad_time(const timespec* time) noexcept {
  return time != nullptr &&
         (time->tv_sec < 0 || time->tv_nsec < 0 || time->tv_nsec >= 1'000'000'000);
}

int poll_all(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  if (is_bad_time(timeout)) {
    errno = EINVAL;
    return -1;
  }
  if (highest_known() < 0) return real().ppoll(fds, count, timeout, mask);
  Poll poll(fds, count);
  if (poll.nothing_ours()) return real().ppoll(fds, count, timeout, mask);
  if (!poll.kernel_answers()) return poll.run(timeout, mask);
  poll.expect_to_be_woken();
  const auto start = Clock::now();
  const int ready = real().ppoll(fds, count, timeout, mask);
  if (ready <= 0 || poll.kernel_answers()) return ready;
  // Something of ours was added: the kernel does not know whether that is ready.
  if (timeout == nullptr || timeout->tv_sec >= 1'000'000'000) return poll.run(nullptr, mask);
  const nanoseconds whole = std::chrono::seconds(timeout->tv_sec) + nanoseconds(timeout->tv_nsec);
  const timespec left = to_timespec(std::max(nanoseconds(0), whole - (Clock::now() - start)));
  return poll.run(&left, mask);
}

int select_all(int count, fd_set* reads, fd_set* writes, fd_set* excepts, timespec* timeout,
               const sigset_t* mask) {
  const auto start = Clock::now();
  const auto whole = timeout == nullptr
                         ? nanoseconds(0)
                         : std::chrono::seconds(timeout->tv_sec) + nanoseconds(timeout->tv_nsec);
  detail::SelectSets sets(count, reads, writes, excepts);
  int ready = 0;
  int bits = 0;
  do {
    ready = poll_all(sets.fds().data(), sets.fds().size(), timeout, mask);
    // Also where a signal ended it: programs go on with what is left.
    if (timeout != nullptr && !is_bad_time(timeout))
      *timeout = to_timespec(std::max(nanoseconds(0), nanoseconds(whole - (Clock::now() - start))));
    if (ready < 0) return -1;
    bits = sets.count();
  } while (bits == 0 && ready > 0);
  if (bits < 0) {
    errno = -bits;
    return -1;
  }
  sets.answer();
  return bits;
}

}  // namespace leat::preload
