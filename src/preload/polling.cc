#include "preload/polling.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <span>
#include <vector>

#include "posix/poll_engine.h"
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

// Those of the caller's descriptors that the kernel cannot answer for.
struct Ours {
  std::size_t index;
  Reference object;
  short events;
  bool quiet = false;  // the kernel was asked after the peer's end: it has nothing new to tell
  // While it is armed. One for each, as another thread may decide meanwhile what is a connection.
  std::optional<Listening> listening{};
  std::optional<Asleep> asleep{};
};

// PollEngine's policy.
class Poll {
 public:
  // `selects`: for select(), which takes what is closed while it waits for ready.
  Poll(pollfd* fds, nfds_t count, bool selects, const sigset_t* mask)
      : fds_(fds, count), selects_(selects), mask_(mask) {
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

  long run(const timespec* timeout) {
    at_once_ = posix::is_zero(timeout);
    return Engine(*this, fds_).run(posix::deadline_of(timeout));
  }

  using Engine = posix::PollEngine<Poll>;
  std::vector<Ours>& ours() { return ours_; }
  unsigned look(const Ours& one) const;
  void begin(bool sleeps, bool found);
  unsigned arm(Ours& one, pollfd& asked, bool sleeps);
  std::chrono::nanoseconds nap() const {
    return alone_ ? std::chrono::nanoseconds::max() : std::chrono::nanoseconds(kNap);
  }
  short woken(Ours& one, short rung);
  bool answers_alone(bool ready) const;
  long spin(Engine& engine, Deadline deadline) const;
  static int poll_now(std::span<pollfd> asked) {
    const int ready = real().poll(asked.data(), asked.size(), 0);
    return ready < 0 ? -errno : ready;
  }
  int sleep(std::span<pollfd> asked, Deadline until, bool ready) const;

 private:
  const std::span<pollfd> fds_;
  const bool selects_;
  const sigset_t* const mask_;
  std::vector<Ours> ours_;
  bool at_once_ = false;
  bool waiting_ = false;  // a set of epoll waits for an offer
  bool alone_ = false;    // a bell rings, or the kernel wakes, for all that may come
};

unsigned Poll::look(const Ours& one) const {
  const int fd = fds_[one.index].fd;
  if (one.object.is(Kind::kConnection)) return one.object->connection.poll_mask(fd);
  if (one.object.is(Kind::kEpoll) && one.object->set->ready() && means(fd, *one.object))
    return POLLIN | POLLRDNORM;
  return 0;
}

// Some ends only the kernel knows of, so that it must be asked now and then.
bool Poll::answers_alone(bool ready) const {
  if (!ready || at_once_) return false;
  bool due = false;
  for (const Ours& one : ours_) {
    if (!one.object.is(Kind::kConnection) || (one.events & POLLPRI) != 0) return false;
    due |= one.object->connection.is_to_be_asked();
  }
  return !due;
}

long Poll::spin(Engine& engine, Deadline deadline) const {
  // Signals that come while it spins are not those that a mask lets in.
  if (mask_ != nullptr) return 0;
  const bool any = std::any_of(ours_.begin(), ours_.end(),
                               [](const Ours& one) { return one.object.is(Kind::kConnection); });
  Spin spin;
  while (any && spin.again()) {
    if (const long ready = engine.look(); ready != 0) {
      spin.found();
      return ready;
    }
    if (!spin.look_further()) continue;
    if (Clock::now() >= deadline) break;
    if (engine.kernel_has_any()) return 1;
  }
  return spin.signal() != SignalWatch::Came::kNothing ? -EINTR : 0;
}

void Poll::begin(bool, bool) {
  for (const Ours& one : ours_)
    if (one.object.is(Kind::kEpoll)) waiting_ |= one.object->set->settle_waiting();
  alone_ = !waiting_;
}

// The kernel is asked only for the bell of a carried socket, and for urgent data.
unsigned Poll::arm(Ours& one, pollfd& asked, bool sleeps) {
  if (one.object.is(Kind::kEpoll) && sleeps) one.object->set->arm_all();
  if (one.object.awaits_offer()) {
    alone_ = false;
    // As if there were no room yet.
    asked.events = static_cast<short>(one.events & ~(POLLOUT | POLLWRNORM));
  }
  if (!one.object.is(Kind::kConnection)) return look(one);
  Connection& connection = one.object->connection;
  if (one.quiet) asked.fd = -1;
  const int bell = connection.bell_rings() ? POLLIN | POLLRDHUP : 0;
  asked.events = static_cast<short>(bell | (one.events & POLLPRI));
  if (!sleeps) return look(one);
  one.listening.emplace(&connection.own());
  // Otherwise another thread hears the doorbell, or none does.
  alone_ &= one.listening->ours() && bell != 0 && !one.quiet;
  one.asleep.emplace(connection, static_cast<unsigned short>(one.events) | POLLRDHUP);
  return look(one);
}

int Poll::sleep(std::span<pollfd> asked, Deadline until, bool ready) const {
  const timespec left = posix::time_left(until);
  const int woken = real().ppoll(asked.data(), asked.size(), until != kNoDeadline ? &left : nullptr,
                                 ready ? nullptr : mask_);
  return woken < 0 ? -errno : woken;
}

short Poll::woken(Ours& one, short rung) {
  const int fd = fds_[one.index].fd;
  const bool listens = one.listening && one.listening->ours();
  const auto disarm = [&one](short revents) {
    one.asleep.reset();
    one.listening.reset();
    return revents;
  };
  // Another thread has closed it.
  if ((rung & POLLNVAL) != 0) return disarm(selects_ ? one.events : short{POLLNVAL});
  if (one.object.is(Kind::kSocket)) {
    // The handshake ended while we slept: decide before the program hears of it.
    if (one.object.awaits_offer() || (rung != 0 && one.object.is_undecided()))
      decide(fd, one.object);
    if (one.object.awaits_offer()) rung = 0;
    if (!one.object.is(Kind::kConnection)) return disarm(rung);
  } else if (one.object.is(Kind::kConnection)) {
    Connection& connection = one.object->connection;
    if ((rung & ~POLLPRI) != 0 || !connection.bell_rings()) {
      connection.look_at_kernel(fd, listens);
      // Bytes, then the end.
      if ((rung & (POLLRDHUP | POLLHUP | POLLERR)) != 0) connection.look_at_kernel(fd, listens);
    }
    one.quiet |= connection.is_peer_gone();
  }
  // No set of epoll says more than POLLIN, but its number may mean another of the kernel's files
  // without a name: it was closed out of our sight. If that is known by now, the kernel's answer
  // stands.
  const unsigned answer = look(one) & (static_cast<unsigned short>(one.events) | posix::kAlways);
  int only_kernel = POLLPRI;
  if (one.object.is(Kind::kEpoll))
    only_kernel = means(fd, *one.object) ? ~(POLLIN | POLLRDNORM) : ~0;
  return disarm(static_cast<short>(answer | (rung & one.events & only_kernel)));
}

}  // namespace

int poll_all(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask,
             bool selects) {
  if (!posix::is_time(timeout)) return fail(EINVAL);
  if (highest_known() < 0) return real().ppoll(fds, count, timeout, mask);
  Poll poll(fds, count, selects, mask);
  if (poll.nothing_ours()) return real().ppoll(fds, count, timeout, mask);
  if (!poll.kernel_answers()) return static_cast<int>(result_of(poll.run(timeout)));
  poll.expect_to_be_woken();
  const Deadline deadline = posix::deadline_of(timeout);
  const int ready = real().ppoll(fds, count, timeout, mask);
  if (ready <= 0 || poll.kernel_answers()) return ready;
  // Something of ours was added: the kernel does not know whether that is ready.
  const timespec left = posix::time_left(deadline);
  return static_cast<int>(result_of(poll.run(deadline != kNoDeadline ? &left : nullptr)));
}

int select_all(int count, fd_set* reads, fd_set* writes, fd_set* excepts, timespec* timeout,
               const sigset_t* mask) {
  const bool ends = timeout != nullptr && posix::is_time(timeout);
  const Deadline deadline = ends ? posix::deadline_of(timeout) : kNoDeadline;
  posix::SelectSets sets(count, reads, writes, excepts);
  return static_cast<int>(result_of(sets.select([&](std::span<pollfd> fds) {
    const int ready = poll_all(fds.data(), fds.size(), timeout, mask, true);
    // Also where a signal ended the wait: programs go on with the time that is left.
    if (deadline != kNoDeadline) *timeout = posix::time_left(deadline);
    return ready < 0 ? -errno : ready;
  })));
}

}  // namespace leat::preload
