// The connecting side of a meeting: leaves its offer where the listener's codes say (meeting.h).
#pragma once

#include <sys/types.h>

#include "preload/descriptors.h"

namespace leat::preload {

// What the SYN can say of a user.
inline constexpr unsigned kUserCodes = 256;
inline unsigned user_code(uid_t user) noexcept { return (user ^ (user >> 8)) % kUserCodes; }

enum class Offered {
  kMemory,       // the object's connection has it
  kNothing,      // it is TCP, and who accepts knows
  kUndelivered,  // who accepts may wait for it
};

// Leaves an offer of new memory by the unix socket `place`, or the word that there is none, and
// says why.
Offered offer_memory(int fd, Object& object, int place, unsigned code, const char*& why) noexcept;

// The size that would tell the code was cut on its way, so it may be that who accepts waits: says
// to all who take offers at that port that there is none.
void refuse_everywhere(int fd, unsigned codes) noexcept;

}  // namespace leat::preload
