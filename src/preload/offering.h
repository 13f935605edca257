// The connecting side of a meeting: leaves its offer where the listener's codes say (meeting.h).
#pragma once

#include <sys/types.h>

#include "base/user_namespace.h"
#include "preload/descriptors.h"
#include "preload/marks.h"
#include "preload/real.h"

namespace leat::preload {

// What the SYN says of a user.
inline unsigned user_code(uid_t user) noexcept { return (user ^ (user >> 8)) % kUserCodes; }

// Whether `other`, as the kernel reports it, is root or the user `owner`, and neither is one of the
// many users that a user namespace does not map.
inline bool is_trusted(uid_t other, uid_t owner) noexcept {
  return other == 0 || (other == owner && detail::is_one_user(other, real().syscall));
}

enum class Offered {
  kMemory,       // the object's connection has it
  kNothing,      // it is TCP, and the acceptor knows
  kUndelivered,  // the acceptor may wait for it
};

// Leaves an offer of new memory by the unix socket `place`, or the word that there is none; `why`
// then gets the reason.
Offered offer_memory(int fd, Object& object, int place, unsigned code, const char*& why) noexcept;

// Tells every acceptor in the folder that may wait for an offer of this socket that there is none.
void refuse_in_folder(int fd, const FolderPlaces& places) noexcept;
// The size that would have told the code was cut on its way, so the acceptor may wait: tells every
// acceptor at that port that there is no offer.
void refuse_everywhere(int fd, unsigned codes) noexcept;

}  // namespace leat::preload
