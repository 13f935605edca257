// Where connections end so soon that meeting costs them more than shared memory gives them back.
//
// Carrying a connection takes some 50 system calls more than TCP's own, on both ends; each message
// then saves some. A program that makes a connection for every request would be slower with
// leat-run than without. So the connecting side looks at how its connections ended: after several
// short ones in a row to one address the next stay with TCP, from their first byte on, but for one
// now and then that is carried to see whether they are still short. One that is not short ends
// this.
//
// Threads: any. In a forked child the copy goes on by itself.
#pragma once

#include <sys/socket.h>

#include "preload/address.h"
#include "preload/descriptors.h"
#include "preload/signal_safe_lock.h"

namespace leat::preload {

// Before connecting: whether the next connection to this address should be carried. Counts it.
bool worth_carrying(const Address& to) noexcept;

// The same, and whether the program's rules want it to be carried. Asks the kernel nothing.
bool is_wanted(const sockaddr_storage& address) noexcept;

// A carried connection that this process made is over.
void note_ended(const Object& object) noexcept;

// To be held across a fork.
SignalSafeLock& lock_of_short_connections() noexcept;

}  // namespace leat::preload
