// What leat-attestd gives up before it serves, so that who takes over a client, or finds a mistake
// in the daemon, gets little of it.
#pragma once

#include <string>

namespace leat::attestd {

// No core dumps; not to be traced, nor its memory read, by other processes of the same user. First
// of all, and again after become().
void hide_memory();
// Out of swap: all of it, now and later. False: the limit of lockable memory forbids it. What keys
// are made in is locked in any case.
bool lock_memory();
// Gives up root for good; nothing, for who is that user already. Throws kInvalidArgument, kSystem.
void become(const std::string& user);
// From here on only system calls that serving needs; others fail. False: built with a sanitizer,
// whose calls nobody can know. Throws kSystem.
bool restrict_system_calls();

}  // namespace leat::attestd
