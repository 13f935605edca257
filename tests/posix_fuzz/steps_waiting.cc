// poll, select and epoll.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "steps.h"

namespace posix_fuzz {

enum PollWay { kPoll, kPpoll, kSelect, kPselect, kSysPpoll };
const Words kPollWays = {{"poll", kPoll},
                         {"ppoll", kPpoll},
                         {"select", kSelect},
                         {"pselect", kPselect},
                         {"sys_ppoll", kSysPpoll}};
const Words kPollEvents = {
    {"IN", POLLIN}, {"OUT", POLLOUT}, {"PRI", POLLPRI}, {"RDHUP", POLLRDHUP}};
const Words kEpollEvents = {{"IN", EPOLLIN},           {"OUT", EPOLLOUT},
                            {"PRI", EPOLLPRI},         {"RDHUP", EPOLLRDHUP},
                            {"ONESHOT", EPOLLONESHOT}, {"ET", static_cast<int>(EPOLLET)}};
const Words kEpollControls = {
    {"ADD", EPOLL_CTL_ADD}, {"MOD", EPOLL_CTL_MOD}, {"DEL", EPOLL_CTL_DEL}};
enum EpollWay { kWait, kPwait, kPwait2, kSysPwait };
const Words kEpollWays = {
    {"wait", kWait}, {"pwait", kPwait}, {"pwait2", kPwait2}, {"sys_pwait", kSysPwait}};

namespace {

// What a result does not depend on: a short wait for what is there already or will not come.
constexpr int kShortWaitMs = 2;

int timeout_of(const Call& call, std::size_t index) {
  const int timeout = call.argument(index);
  return timeout > 0 ? kShortWaitMs : timeout;
}

long select_of(const Call& call, pollfd (&polled)[3], int timeout_ms, bool with_mask) {
  fd_set sets[3];
  for (fd_set& set : sets) FD_ZERO(&set);
  int most = -1;
  for (const pollfd& one : polled) {
    if (one.fd < 0) continue;
    most = std::max(most, one.fd);
    if ((one.events & POLLIN) != 0) FD_SET(one.fd, &sets[0]);
    if ((one.events & POLLOUT) != 0) FD_SET(one.fd, &sets[1]);
    if ((one.events & POLLPRI) != 0) FD_SET(one.fd, &sets[2]);
  }
  timeval time{0, std::max(timeout_ms, 0) * 1000L};
  const timespec exact{0, std::max(timeout_ms, 0) * 1'000'000L};
  const long ready =
      with_mask ? pselect(most + 1, &sets[0], &sets[1], &sets[2], timeout_ms < 0 ? nullptr : &exact,
                          nullptr)
                : select(most + 1, &sets[0], &sets[1], &sets[2], timeout_ms < 0 ? nullptr : &time);
  call.result(ready);
  if (ready < 0) return ready;
  for (const pollfd& one : polled) {
    if (one.fd < 0) continue;
    call.say(" %s%s%s.", FD_ISSET(one.fd, &sets[0]) ? "r" : "",
             FD_ISSET(one.fd, &sets[1]) ? "w" : "", FD_ISSET(one.fd, &sets[2]) ? "e" : "");
  }
  return ready;
}

void run_poll(Call& call) {
  const auto events = static_cast<short>(call.argument(3));
  pollfd polled[3];
  for (std::size_t i = 0; i < 3; ++i) polled[i] = {call.fd(i), events, 0};
  const int timeout = timeout_of(call, 4);
  const int way = call.argument(5);
  if (way == kSelect || way == kPselect) {
    select_of(call, polled, timeout, way == kPselect);
    return;
  }
  const timespec exact{0, std::max(timeout, 0) * 1'000'000L};
  long ready = -1;
  if (way == kPoll) ready = poll(polled, 3, timeout);
  if (way == kPpoll) ready = ppoll(polled, 3, timeout < 0 ? nullptr : &exact, nullptr);
  if (way == kSysPpoll) {
    // The kernel writes what is left of the time.
    timespec left = exact;
    ready = syscall(SYS_ppoll, polled, 3, timeout < 0 ? nullptr : &left, nullptr, 8);
  }
  call.result(ready);
  for (const pollfd& one : polled) {
    if (one.fd >= 0 && ready >= 0) call.say(" %x", static_cast<unsigned>(one.revents));
  }
}

void run_epoll_create(Call& call) {
  call.keep(
      0, static_cast<int>(call.result(epoll_create1(call.argument(1) != 0 ? EPOLL_CLOEXEC : 0))));
}

void run_epoll_ctl(Call& call) {
  epoll_event event{};
  event.events = static_cast<std::uint32_t>(call.argument(3));
  // A number by which the step is known again.
  event.data.u64 = 0x1234'5678'0000'0000ULL + static_cast<unsigned>(call.number());
  const int set = call.fd(0);
  const int control = call.argument(1);
  const int fd = call.fd(2);
  call.result(call.argument(4) != 0 ? syscall(SYS_epoll_ctl, set, control, fd, &event)
                                    : epoll_ctl(set, control, fd, &event));
}

void run_epoll_wait(Call& call) {
  epoll_event events[16] = {};
  const int set = call.fd(0);
  const int timeout = timeout_of(call, 1);
  const timespec exact{0, std::max(timeout, 0) * 1'000'000L};
  long ready = -1;
  switch (call.argument(2)) {
    case kWait:
      ready = epoll_wait(set, events, 16, timeout);
      break;
    case kPwait:
      ready = epoll_pwait(set, events, 16, timeout, nullptr);
      break;
    case kPwait2:
      ready = epoll_pwait2(set, events, 16, timeout < 0 ? nullptr : &exact, nullptr);
      break;
    default:
      ready = syscall(SYS_epoll_pwait, set, events, 16, timeout, nullptr, 8);
  }
  call.result(ready);
  // The kernel is free to report sockets in any order.
  std::sort(events, events + std::max(ready, 0L),
            [](const epoll_event& one, const epoll_event& other) {
              return one.data.u64 < other.data.u64;
            });
  for (long i = 0; i < ready; ++i) {
    const std::uint64_t which = events[i].data.u64 - 0x1234'5678'0000'0000ULL;
    if (which > 100'000) {
      call.say(" foreign:%x", events[i].events);
    } else {
      call.say(" %u:%x", static_cast<unsigned>(which), events[i].events);
    }
  }
}

}  // namespace

std::vector<Operation> waiting_operations() {
  return {
      {"poll", {slot(), slot(), slot(), flags(kPollEvents), number(), word(kPollWays)}, run_poll},
      {"epoll_create", {slot(), number()}, run_epoll_create},
      {"epoll_ctl",
       {slot(), word(kEpollControls), slot(), flags(kEpollEvents), number()},
       run_epoll_ctl},
      {"epoll_wait", {slot(), number(), word(kEpollWays)}, run_epoll_wait},
  };
}

}  // namespace posix_fuzz
