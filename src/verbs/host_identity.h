// Which host, user and network namespace a process runs in: shm works where all three are equal.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/random.h"

namespace leat::detail {

struct HostIdentity {
  std::array<std::byte, 16> boot_id{};  // of the kernel's boot; all zero: unknown
  std::uint32_t user = 0;               // effective user id; kUnknownUser if that says nothing
  std::uint64_t network = 0;            // inode of the network namespace; 0: unknown

  bool operator==(const HostIdentity&) const = default;
  static constexpr std::uint32_t kUnknownUser = 0xffff'ffff;
  bool boot_known() const { return boot_id != std::array<std::byte, 16>{}; }
};

// Reads it from the kernel each time, so that it is right after fork, setuid and unshare. What
// cannot be read is unknown. Throws kResource if there is no descriptor to read it with.
HostIdentity host_identity();

// A number that is this process's own, half of it random; a child of fork has another. Tells
// processes apart that have no reason to lie. Any thread.
Secret this_process();

}  // namespace leat::detail
