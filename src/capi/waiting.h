// How the calls of leat/c.h wait for handles; EpollSet::wait() is for sets of epoll.
#pragma once

#include <poll.h>
#include <signal.h>

#include <span>

#include "base/clock.h"
#include "capi/handle.h"

namespace leat::detail::c {

// poll(2): `objects[i]` is what fds[i] stands for, null for the kernel's own. How many have revents
// now; 0 at the deadline; -EINTR, -EINVAL. `signals`: as for ppoll(2), may be null.
long poll_all(std::span<pollfd> fds, std::span<Pollable* const> objects, Deadline deadline,
              const sigset_t* signals);

// For a blocking call at a handle: 1 once it has one of `events`, -EAGAIN at the deadline, or
// -EINTR. A signal whose handler has SA_RESTART does not end the wait, unless there is a deadline,
// or the call has `some` bytes already.
int wait_for(Handle& handle, unsigned events, Deadline deadline, bool some = false);

// ppoll(2) where the thread may be cancelled, if its owner allows that, and gets the signals that
// `signals` lets through. -errno.
int sleep_in_kernel(std::span<pollfd> fds, Deadline deadline, const sigset_t& signals);

}  // namespace leat::detail::c
