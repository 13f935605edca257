// Memory of short connections that are over, kept for the next ones: to make, map and touch it
// takes longer than all else that such a connection needs.
//
// The side that offered it offers it again, to the same user only, as the bytes of the last
// connection are still in it; and only if nobody else can have it any more: the peer has closed it
// in order, and no other process of this end has got it. The side that accepted it keeps it
// mapped in case it comes again, which its inode number tells. Both keep few and small ones, so a
// process keeps some MiB at most.
//
// Threads: any.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "preload/descriptors.h"
#include "preload/signal_safe_lock.h"

namespace leat::preload {

// Of Object::made_at; changes with every fork.
std::uint32_t memory_generation() noexcept;

// At the end of a connection. False: it is not kept, and still the caller's.
bool keep_memory(Object& object) noexcept;

// For a connection to `peer`: memory as if it were new but for the header's first fields, and its
// hidden memfd. Null: there is none.
SharedMemory* take_kept_memory(uid_t peer, int& memfd) noexcept;
// The mapping of what `received` stands for, if it was kept, and its hidden memfd.
SharedMemory* find_kept_memory(int received, int& memfd) noexcept;

// Before a fork: what is connected now will be the child's too. The second one is for the child,
// which does not own what is kept.
void share_all_memory() noexcept;
void forget_kept_memory() noexcept;
// To be held across a fork.
SignalSafeLock& lock_of_offered_memory() noexcept;
SignalSafeLock& lock_of_accepted_memory() noexcept;

}  // namespace leat::preload
