// leat/c.h: poll, select and epoll.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <optional>
#include <vector>

#include "capi/call.h"
#include "capi/descriptors.h"
#include "capi/waiting.h"
#include "leat/c.h"
#include "posix/select_sets.h"
#include "posix/times.h"

using namespace leat::detail;
using namespace leat::detail::c;

namespace {

namespace posix = leat::posix;

Deadline deadline_of_ms(int timeout) {
  return timeout < 0 ? kNoDeadline : deadline_after(std::chrono::milliseconds(timeout));
}

// No value: the kernel refuses it (EINVAL).
std::optional<Deadline> deadline_of(const timespec* time) {
  if (!posix::is_time(time)) return std::nullopt;
  return posix::deadline_of(time);
}

long poll_described(std::span<pollfd> fds, Deadline deadline, const sigset_t* signals) {
  std::vector<std::shared_ptr<Pollable>> kept(fds.size());
  std::vector<Pollable*> objects(fds.size());
  for (std::size_t i = 0; i < fds.size(); ++i) {
    fds[i].revents = 0;
    if (fds[i].fd >= 0) kept[i] = find(fds[i].fd).pollable();
    objects[i] = kept[i].get();
  }
  return poll_all(fds, objects, deadline, signals);
}

long select_described(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
                      Deadline deadline, const sigset_t* signals) {
  if (count < 0) return -EINVAL;
  posix::SelectSets sets(std::min(count, FD_SETSIZE), readable, writable, exceptional);
  return sets.select([&](std::span<pollfd> fds) { return poll_described(fds, deadline, signals); });
}

template <typename Other>
int wait_for_epoll(const char* name, int number, epoll_event* events, int most,
                   std::optional<Deadline> deadline, const sigset_t* signals, Other&& other) {
  return static_cast<int>(called(name, [&]() -> long {
    const Described described = find(number);
    if (described.handle != nullptr) return -EINVAL;
    const auto& set = described.epoll;
    if (set == nullptr) return result_of(other());
    if (!deadline) return -EINVAL;
    return set->wait(events, most, *deadline, signals);
  }));
}

}  // namespace

int leat_poll(pollfd* fds, nfds_t count, int timeout_ms) {
  return static_cast<int>(called("leat_poll", [&]() -> long {
    if (fds == nullptr && count != 0) return -EFAULT;
    return poll_described({fds, count}, deadline_of_ms(timeout_ms), nullptr);
  }));
}

int leat_ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* signals) {
  return static_cast<int>(called("leat_ppoll", [&]() -> long {
    if (fds == nullptr && count != 0) return -EFAULT;
    const auto deadline = deadline_of(timeout);
    if (!deadline) return -EINVAL;
    return poll_described({fds, count}, *deadline, signals);
  }));
}

int leat_select(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
                timeval* timeout) {
  return static_cast<int>(called("leat_select", [&]() -> long {
    const timespec whole = timeout != nullptr ? posix::to_timespec(*timeout) : timespec{};
    const auto deadline = deadline_of(timeout != nullptr ? &whole : nullptr);
    if (!deadline) return -EINVAL;
    const long result =
        select_described(count, readable, writable, exceptional, *deadline, nullptr);
    // Linux says what is left.
    if (*deadline != kNoDeadline) *timeout = posix::to_timeval(posix::time_left(*deadline));
    return result;
  }));
}

int leat_pselect(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
                 const timespec* timeout, const sigset_t* signals) {
  return static_cast<int>(called("leat_pselect", [&]() -> long {
    const auto deadline = deadline_of(timeout);
    if (!deadline) return -EINVAL;
    return select_described(count, readable, writable, exceptional, *deadline, signals);
  }));
}

int leat_epoll_create(int size) {
  return static_cast<int>(called("leat_epoll_create", [&]() -> long {
    return size > 0 ? NewDescriptor(false).become_epoll() : -EINVAL;
  }));
}

int leat_epoll_create1(int flags) {
  return static_cast<int>(called("leat_epoll_create1", [&]() -> long {
    if ((flags & ~EPOLL_CLOEXEC) != 0) return -EINVAL;
    return NewDescriptor((flags & EPOLL_CLOEXEC) != 0).become_epoll();
  }));
}

int leat_epoll_ctl(int number, int operation, int handle, epoll_event* event) {
  return static_cast<int>(called("leat_epoll_ctl", [&]() -> long {
    const Described described = find(number);
    if (described.handle != nullptr) return -EINVAL;
    const auto& set = described.epoll;
    if (set == nullptr) return result_of(::epoll_ctl(number, operation, handle, event));
    return set->control(operation, handle, event, find(handle).pollable());
  }));
}

int leat_epoll_wait(int number, epoll_event* events, int most, int timeout_ms) {
  return wait_for_epoll("leat_epoll_wait", number, events, most, deadline_of_ms(timeout_ms),
                        nullptr, [&] { return ::epoll_wait(number, events, most, timeout_ms); });
}

int leat_epoll_pwait(int number, epoll_event* events, int most, int timeout_ms,
                     const sigset_t* signals) {
  return wait_for_epoll("leat_epoll_pwait", number, events, most, deadline_of_ms(timeout_ms),
                        signals,
                        [&] { return ::epoll_pwait(number, events, most, timeout_ms, signals); });
}

int leat_epoll_pwait2(int number, epoll_event* events, int most, const timespec* timeout,
                      const sigset_t* signals) {
  return wait_for_epoll("leat_epoll_pwait2", number, events, most, deadline_of(timeout), signals,
                        [&] { return ::epoll_pwait2(number, events, most, timeout, signals); });
}
