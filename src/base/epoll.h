// Descriptors that threads sleep on: events, and epoll sets of several descriptors.
#pragma once

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cstdint>

#include "base/fd.h"
#include "base/system_error.h"

namespace leat::detail {

inline Fd new_event(unsigned value = 0) {
  return Fd(check(eventfd(value, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"));
}

inline Fd new_epoll_set() { return Fd(check(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")); }

// From now on `set` is readable whenever `fd` has one of `events`; a closed `fd` leaves by itself.
// `operation` EPOLL_CTL_MOD: `fd` is in the set, for other events. `data`: what epoll_wait() then
// gives, in data.u64.
inline void epoll_add(const Fd& set, int fd, unsigned events = EPOLLIN,
                      int operation = EPOLL_CTL_ADD, std::uint64_t data = 0) {
  epoll_event wanted{};
  wanted.events = events;
  wanted.data.u64 = data;
  check(epoll_ctl(set.get(), operation, fd, &wanted), "epoll_ctl");
}

inline void epoll_change(const Fd& set, int fd, unsigned events) {
  epoll_add(set, fd, events, EPOLL_CTL_MOD);
}

}  // namespace leat::detail
