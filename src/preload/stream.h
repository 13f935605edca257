// The calls of a program on a carried connection, with TCP's answers.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include "preload/connection.h"

namespace leat::preload {

// As recvmsg(2) and sendmsg(2): bytes, or -1 and errno. `flags` are those of the call.
ssize_t receive(int fd, Connection& connection, const iovec* vectors, std::size_t count, int flags);
ssize_t send(int fd, Connection& connection, const iovec* vectors, std::size_t count, int flags);

// What they give on an accepted socket whose offer has not come: of this thread's last wait.
int undecided_error() noexcept;
void set_undecided_error(int error) noexcept;

}  // namespace leat::preload
