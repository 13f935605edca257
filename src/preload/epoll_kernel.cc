#include "posix/epoll_wait.h"
#include "preload/epoll_set.h"
#include "preload/real.h"

namespace leat::preload {

int wait_in_kernel(int epoll_fd, epoll_event* events, int most, const timespec* timeout,
                   const sigset_t* mask) {
  return posix::wait_for_events(real().epoll_pwait2, real().epoll_pwait, epoll_fd, events, most,
                                timeout, mask);
}

}  // namespace leat::preload
