// poll(2) and select(2) over descriptors of which some are carried connections.
#pragma once

#include <poll.h>
#include <sys/select.h>

#include <csignal>
#include <ctime>

namespace leat::preload {

// As ppoll(2); null for no timeout. Cancellation points.
int poll_all(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask,
             bool selects = false);
// As pselect(2); `timeout` becomes what is left of it, as Linux does for select().
int select_all(int count, fd_set* reads, fd_set* writes, fd_set* excepts, timespec* timeout,
               const sigset_t* mask);

}  // namespace leat::preload
