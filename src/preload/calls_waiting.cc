// poll, select and epoll.
#include <cstdlib>

#include "posix/times.h"
#include "preload/call.h"
#include "preload/epoll_passing.h"
#include "preload/epoll_set.h"
#include "preload/polling.h"
#include "preload/socket_facts.h"

namespace leat::preload {
namespace {

int made_set(int fd) {
  if (fd < 0) return fd;
  forget(fd);
  EpollSet::purge_retired();
  add_set(fd);
  return fd;
}

int wait(int fd, epoll_event* events, int most, const timespec* timeout, const sigset_t* mask) {
  const Reference object = find(fd);
  if (!posix::is_time(timeout)) return fail(EINVAL);
  if (!object.is(Kind::kEpoll) || most <= 0) return wait_in_kernel(fd, events, most, timeout, mask);
  return object->set->wait(fd, events, most, timeout, mask);
}

// Whether one of them is nothing that the kernel can answer for.
bool any_known(int count, const fd_set* reads, const fd_set* writes, const fd_set* excepts) {
  for (int fd = 0; fd < count && fd <= highest_known(); ++fd) {
    if (descriptor_entry(fd).load(std::memory_order_relaxed) == nullptr) continue;
    if ((reads != nullptr && FD_ISSET(fd, reads)) || (writes != nullptr && FD_ISSET(fd, writes)) ||
        (excepts != nullptr && FD_ISSET(fd, excepts)))
      return true;
  }
  return false;
}

}  // namespace
}  // namespace leat::preload

using namespace leat::preload;  // NOLINT: the functions below are C's

// The C library's headers call the parameters otherwise.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)

LEAT_CALL int poll(pollfd* fds, nfds_t count, int timeout) {
  if (timeout < 0) return poll_all(fds, count, nullptr, nullptr);
  const timespec time = posix::to_timespec(timeout);
  return poll_all(fds, count, &time, nullptr);
}

LEAT_CALL int ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  return poll_all(fds, count, timeout, mask);
}

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
LEAT_CALL int __poll_chk(pollfd* fds, nfds_t count, int timeout, size_t room) {
  if (room / sizeof(*fds) < count) abort();
  return poll(fds, count, timeout);
}

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
LEAT_CALL int __ppoll_chk(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask,
                          size_t room) {
  if (room / sizeof(*fds) < count) abort();
  return ppoll(fds, count, timeout, mask);
}

LEAT_CALL int select(int count, fd_set* reads, fd_set* writes, fd_set* excepts, timeval* timeout) {
  if (!any_known(count, reads, writes, excepts))
    return real().select(count, reads, writes, excepts, timeout);
  if (timeout == nullptr) return select_all(count, reads, writes, excepts, nullptr, nullptr);
  timespec time = posix::to_timespec(*timeout);
  const int ready = select_all(count, reads, writes, excepts, &time, nullptr);
  if (posix::is_time(&time)) *timeout = posix::to_timeval(time);
  return ready;
}

LEAT_CALL int pselect(int count, fd_set* reads, fd_set* writes, fd_set* excepts,
                      const timespec* timeout, const sigset_t* mask) {
  if (!any_known(count, reads, writes, excepts))
    return real().pselect(count, reads, writes, excepts, timeout, mask);
  if (timeout == nullptr) return select_all(count, reads, writes, excepts, nullptr, mask);
  timespec time = *timeout;
  return select_all(count, reads, writes, excepts, &time, mask);
}

LEAT_CALL int epoll_create(int size) noexcept { return made_set(real().epoll_create(size)); }

LEAT_CALL int epoll_create1(int flags) noexcept { return made_set(real().epoll_create1(flags)); }

LEAT_CALL int epoll_ctl(int epoll_fd, int operation, int fd, epoll_event* event) noexcept {
  const Reference set = find(epoll_fd);
  if (!set.is(Kind::kEpoll)) return real().epoll_ctl(epoll_fd, operation, fd, event);
  Reference object = find_current(fd);
  // The number of one that was closed out of our sight may mean another file without a name.
  if (object.is(Kind::kEpoll) && operation == EPOLL_CTL_ADD && !is_set(fd)) {
    forget_lost(fd, *object);
    object = {};
  }
  // A socket may connect while it is in the set.
  if (!object && operation == EPOLL_CTL_ADD && event != nullptr && is_connectable(fd))
    object = add(fd, Kind::kSocket);
  if (object.is_undecided()) decide(fd, object);
  if (object.is(Kind::kOwn)) return fail(EBADF);
  return set->set->control(epoll_fd, operation, fd, event, object);
}

LEAT_CALL int epoll_wait(int fd, epoll_event* events, int most, int timeout) {
  if (timeout < 0) return wait(fd, events, most, nullptr, nullptr);
  const timespec time = posix::to_timespec(timeout);
  return wait(fd, events, most, &time, nullptr);
}

LEAT_CALL int epoll_pwait(int fd, epoll_event* events, int most, int timeout,
                          const sigset_t* mask) {
  if (timeout < 0) return wait(fd, events, most, nullptr, mask);
  const timespec time = posix::to_timespec(timeout);
  return wait(fd, events, most, &time, mask);
}

LEAT_CALL int epoll_pwait2(int fd, epoll_event* events, int most, const timespec* timeout,
                           const sigset_t* mask) {
  return wait(fd, events, most, timeout, mask);
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
