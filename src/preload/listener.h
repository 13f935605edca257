// A listener under leat-run: the mark by which connectors know it, and where its offers are taken.
// See meeting.h.
#pragma once

#include "preload/descriptors.h"

namespace leat::preload {

// Before the kernel's listen(), true if the socket was marked, and if so after it. Keep errno.
bool before_listen(int fd, Reference& socket) noexcept;
void after_listen(int fd, Reference& socket, int backlog) noexcept;
// A socket that listened before may have another port now, and so another place for offers.
void listens_again(int fd, Object& listener, int backlog) noexcept;

// Before it and later: takes the program's TCP_DEFER_ACCEPT off the kernel's socket, on which no
// first bytes of carried connections come, to tell it back.
void keep_deferred(int fd, Object& listener) noexcept;

// A listening socket that is not known by this number, but marked, is a copy that was made out of
// our sight; from then on it is known.
void find_listener(int fd) noexcept;
// A listening TCP socket whose offers arrive at the place of that port and code.
bool is_listener_of(int fd, unsigned port, unsigned code) noexcept;

}  // namespace leat::preload
