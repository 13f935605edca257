// Another user, for tests that root runs.
#pragma once

#include <sys/types.h>
#include <unistd.h>

namespace leat::detail {

inline constexpr uid_t kNobody = 65534;

// Makes the calling process one of user and group nobody, for good. False if it may not.
inline bool become_nobody() {
  return setresgid(kNobody, kNobody, kNobody) == 0 && setresuid(kNobody, kNobody, kNobody) == 0;
}

}  // namespace leat::detail
