// What a user's number means inside a user namespace.
#pragma once

#include <sys/types.h>
#include <unistd.h>

namespace leat::detail {

inline constexpr uid_t kNoUser = static_cast<uid_t>(-1);

// How a file is read: by the C library's syscall(), or by what stands behind it for a library that
// stands in front of it.
using SystemCall = long (*)(long number, ...);

// The number by which the kernel tells this process of every user whom its user namespace does not
// map, of its own too if that is not mapped (/proc/sys/kernel/overflowuid, mostly 65534): equal
// numbers then do not mean one user. kNoUser where all users are mapped, as outside of user
// namespaces. Reads files. Any thread.
uid_t number_of_unmapped_users(SystemCall call = ::syscall) noexcept;

// Whether `user`, as the kernel tells it to this process, can be only one. Any thread.
inline bool is_one_user(uid_t user, SystemCall call = ::syscall) noexcept {
  return user != number_of_unmapped_users(call);
}

}  // namespace leat::detail
