// fork() in a process that has other threads, such as a listener's.
#pragma once

#include <sys/types.h>

namespace leat::detail {

// fork() while every other thread of this process sleeps. A thread that works may hold a lock of a
// library that does not care for fork(), as those of AddressSanitizer's allocator and of OpenSSL;
// the child has the lock, but not the thread, and would wait for it for ever. Returns what fork()
// returns; throws std::system_error where that fails, and std::runtime_error if the threads do not
// come to rest within hang_limit().
pid_t fork_at_rest();

}  // namespace leat::detail
