// What leat-attestd gives up before it serves, so that an attacker gains little by a client or by a
// mistake in the daemon.
#pragma once

#include <string>

namespace leat::attestd {

// Starts this program over from a copy in memory that its user may not read, which Linux hides from
// the first instruction on; returns in that copy, and where it is needless: for root, and for a
// program that its user cannot read anyway. What other processes of the user got hold of before,
// such as an open /proc/PID/mem, is of the memory that is gone. To be called before anything else.
// Throws kUnavailable.
void start_hidden(char** arguments);
// Forbids core dumps, and other processes of the same user to trace this one or to read its memory.
// To be called next, and again after become(). Throws kUnavailable if a process traces this one
// already, because it would go on, and if that cannot be found out.
void hide_memory();
// Keeps all memory, now and later, out of swap. Returns false if the limit of lockable memory
// forbids it; memory in which keys are made is locked in any case.
bool lock_memory();
// Gives up root for good; does nothing if this process runs as that user already. Throws
// kInvalidArgument, kSystem.
void become(const std::string& user);
// From now on only the system calls that serving needs succeed. Returns false if built with a
// sanitizer, whose calls are not known. Throws kSystem.
bool restrict_system_calls();

}  // namespace leat::attestd
