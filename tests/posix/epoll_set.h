// An epoll set that says what it is told and what it tells.
#pragma once

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "case.h"

namespace posix_cases {

// Events come out with the order in which their descriptors were first added, because descriptors
// differ. For one thread.
class EpollSet {
 public:
  explicit EpollSet(const Side& side) : side_(side), set_(::epoll_create1(EPOLL_CLOEXEC)) {
    require(set_ >= 0, "epoll_create1");
  }
  EpollSet(const EpollSet&) = delete;
  EpollSet& operator=(const EpollSet&) = delete;
  ~EpollSet() { ::close(set_); }

  int fd() const { return set_; }

  void add(int fd, unsigned events) { control("EPOLL_CTL_ADD", EPOLL_CTL_ADD, fd, events); }
  void modify(int fd, unsigned events) { control("EPOLL_CTL_MOD", EPOLL_CTL_MOD, fd, events); }
  void remove(int fd) { control("EPOLL_CTL_DEL", EPOLL_CTL_DEL, fd, 0); }

  int wait(int milliseconds) {
    events_.resize(16);
    const int count =
        ::epoll_wait(set_, events_.data(), static_cast<int>(events_.size()), milliseconds);
    events_.resize(static_cast<std::size_t>(std::max(count, 0)));
    std::sort(events_.begin(), events_.end(),
              [](const epoll_event& a, const epoll_event& b) { return a.data.u64 < b.data.u64; });
    return count;
  }

  void say_events(int milliseconds = kPatienceMs) {
    side_.say_result("epoll_wait", wait(milliseconds));
    for (const epoll_event& event : events_) {
      side_.say("number " + std::to_string(event.data.u64) + ": " + epoll_names(event.events));
    }
  }

 private:
  void control(const char* name, int operation, int fd, unsigned events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = numbers_.emplace(fd, numbers_.size()).first->second;
    errno = 0;
    side_.say_result(name, ::epoll_ctl(set_, operation, fd, &event));
  }

  const Side& side_;
  int set_;
  std::map<int, std::size_t> numbers_;
  std::vector<epoll_event> events_;
};

}  // namespace posix_cases
