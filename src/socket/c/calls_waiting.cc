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

#include "leat/c.h"
#include "socket/c/call.h"
#include "socket/c/descriptors.h"
#include "socket/c/waiting.h"

using namespace leat::detail;
using namespace leat::detail::c;

namespace {

long result_of(long result) { return result < 0 ? -errno : result; }

Deadline deadline_of_ms(int timeout) {
  return timeout < 0 ? kNoDeadline : deadline_after(std::chrono::milliseconds(timeout));
}

// No value: it is none.
template <typename Time>
std::optional<Deadline> deadline_of_time(const Time* time, long fraction, long fractions) {
  if (time == nullptr) return kNoDeadline;
  if (time->tv_sec < 0 || fraction < 0 || fraction >= fractions) return std::nullopt;
  // A time that does not fit is no deadline.
  constexpr long kLongest = 1'000'000'000;
  if (time->tv_sec > kLongest) return kNoDeadline;
  return deadline_after(std::chrono::seconds(time->tv_sec) +
                        std::chrono::nanoseconds(fraction * (1'000'000'000 / fractions)));
}
std::optional<Deadline> deadline_of_spec(const timespec* time) {
  return deadline_of_time(time, time == nullptr ? 0 : time->tv_nsec, 1'000'000'000);
}
std::optional<Deadline> deadline_of_val(const timeval* time) {
  return deadline_of_time(time, time == nullptr ? 0 : time->tv_usec, 1'000'000);
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

// select(2)'s sets as poll(2)'s events.
constexpr short kReadable = POLLIN | POLLRDNORM | POLLRDBAND | POLLHUP | POLLERR;
constexpr short kWritable = POLLOUT | POLLWRNORM | POLLWRBAND | POLLERR;
constexpr short kExceptional = POLLPRI;

long select_described(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
                      Deadline deadline, const sigset_t* signals) {
  if (count < 0) return -EINVAL;
  const int most = std::min(count, FD_SETSIZE);
  std::vector<pollfd> fds;
  const auto in = [](int fd, const fd_set* set) { return set != nullptr && FD_ISSET(fd, set); };
  for (int fd = 0; fd < most; ++fd) {
    const int events = (in(fd, readable) ? POLLIN | POLLRDNORM : 0) |
                       (in(fd, writable) ? POLLOUT | POLLWRNORM : 0) |
                       (in(fd, exceptional) ? POLLPRI : 0);
    if (events != 0) fds.push_back({fd, static_cast<short>(events), 0});
  }
  const Deadline wanted = deadline;
  for (;;) {
    const long ready = poll_described(fds, wanted, signals);
    if (ready < 0) return ready;
    for (const pollfd& entry : fds)
      if ((entry.revents & POLLNVAL) != 0) return -EBADF;
    long bits = 0;
    const auto counts = [](const pollfd& entry, short asked, short shown) {
      return (entry.events & asked) != 0 && (entry.revents & shown) != 0;
    };
    for (const pollfd& entry : fds)
      bits += counts(entry, POLLIN, kReadable) + counts(entry, POLLOUT, kWritable) +
              counts(entry, POLLPRI, kExceptional);
    // A hang-up that nobody asked for is no event here, as POLLHUP is for poll.
    if (bits == 0 && ready > 0 && !passed(wanted)) {
      const timespec moment{0, 1'000'000};
      nanosleep(&moment, nullptr);
      continue;
    }
    for (fd_set* set : {readable, writable, exceptional})
      if (set != nullptr)
        for (int fd = 0; fd < most; ++fd) FD_CLR(fd, set);
    for (const pollfd& entry : fds) {
      if (counts(entry, POLLIN, kReadable)) FD_SET(entry.fd, readable);
      if (counts(entry, POLLOUT, kWritable)) FD_SET(entry.fd, writable);
      if (counts(entry, POLLPRI, kExceptional)) FD_SET(entry.fd, exceptional);
    }
    return bits;
  }
}

template <typename Other>
int wait_for_epoll(const char* name, int number, epoll_event* events, int most, int timeout_ms,
                   const sigset_t* signals, Other&& other) {
  return static_cast<int>(called(name, [&]() -> long {
    const Described described = find(number);
    if (described.handle != nullptr) return -EINVAL;
    const auto& set = described.epoll;
    if (set == nullptr) return result_of(other());
    return set->wait(events, most, deadline_of_ms(timeout_ms), signals);
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
    const auto deadline = deadline_of_spec(timeout);
    if (!deadline) return -EINVAL;
    return poll_described({fds, count}, *deadline, signals);
  }));
}

int leat_select(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
                timeval* timeout) {
  return static_cast<int>(called("leat_select", [&]() -> long {
    const auto deadline = deadline_of_val(timeout);
    if (!deadline) return -EINVAL;
    const long result =
        select_described(count, readable, writable, exceptional, *deadline, nullptr);
    if (timeout != nullptr && *deadline != kNoDeadline) {
      // Linux says what is left.
      const auto left = std::max(*deadline - Clock::now(), Clock::duration::zero());
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
      *timeout = {seconds.count(),
                  std::chrono::duration_cast<std::chrono::microseconds>(left - seconds).count()};
    }
    return result;
  }));
}

int leat_pselect(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
                 const timespec* timeout, const sigset_t* signals) {
  return static_cast<int>(called("leat_pselect", [&]() -> long {
    const auto deadline = deadline_of_spec(timeout);
    if (!deadline) return -EINVAL;
    return select_described(count, readable, writable, exceptional, *deadline, signals);
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
  return wait_for_epoll("leat_epoll_wait", number, events, most, timeout_ms, nullptr,
                        [&] { return ::epoll_wait(number, events, most, timeout_ms); });
}

int leat_epoll_pwait(int number, epoll_event* events, int most, int timeout_ms,
                     const sigset_t* signals) {
  return wait_for_epoll("leat_epoll_pwait", number, events, most, timeout_ms, signals,
                        [&] { return ::epoll_pwait(number, events, most, timeout_ms, signals); });
}
