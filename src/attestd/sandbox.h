// What leat-attestd gives up before it serves, so that an attacker gains little by a client or by a
// mistake in the daemon.
#pragma once

#include <string>

namespace leat::attestd {

// Forbids core dumps, and other processes of the same user to trace this one or to read its memory.
// To be called before anything else, and again after become().
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
