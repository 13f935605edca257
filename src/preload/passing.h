// Descriptors that a program gives to another in a message (SCM_RIGHTS). With a carried connection
// goes its memory, with a listener its meeting place, as further descriptors after the program's;
// a receiver under leat-run takes them off again. Any other receiver gets descriptors that it did
// not ask for, of a connection that it could not use anyway.
#pragma once

#include <sys/socket.h>

namespace leat::preload {

// As sendmsg(2) and recvmsg(2) on a socket that is not carried.
ssize_t send_with_rights(int fd, const msghdr* message, int flags);
ssize_t receive_with_rights(int fd, msghdr* message, int flags);

// Whether descriptors can come with what is received.
bool may_get_rights(int fd, const msghdr* message);
// Whether one of the message's descriptors needs another to go with it.
bool passes_ours(const msghdr& message);

}  // namespace leat::preload
