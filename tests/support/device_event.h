// What a device of tests that stands around another gives its users to sleep on.
#pragma once

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/fd.h"
#include "base/system_error.h"

namespace leat::detail {

// A descriptor that is readable when one of those that were added is, or when raise() was called.
class DeviceEvent {
 public:
  DeviceEvent()
      : own_(check(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")),
        both_(check(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")) {
    add(own_.get());
  }
  void add(int fd) {
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    check(::epoll_ctl(both_.get(), EPOLL_CTL_ADD, fd, &wanted), "epoll_ctl");
  }
  void raise() { ::eventfd_write(own_.get(), 1); }
  void lower() {
    eventfd_t count = 0;
    ::eventfd_read(own_.get(), &count);
  }
  int fd() const { return both_.get(); }

 private:
  Fd own_;
  Fd both_;
};

}  // namespace leat::detail
