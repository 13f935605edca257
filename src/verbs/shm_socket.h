// The unix socket beneath a shm connection: carries descriptors, tells who the peer is, and by
// closing that it died.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/fd.h"
#include "base/random.h"
#include "base/unix_socket.h"

namespace leat::detail::shm {

// First message of the active side.
struct Join {
  std::uint64_t magic = 0;
  Secret secret{};
  std::uint32_t receive_depth = 0;
  std::uint32_t asymmetric = 0;  // it registered for heavy barriers
};

// Answer, with the shared memory and then the four event descriptors: passive side's send and
// receive events, then the active's.
struct Welcome {
  std::uint64_t magic = 0;
  std::uint32_t depth_to_passive = 0;
  std::uint32_t depth_to_active = 0;
  std::uint32_t asymmetric = 0;  // both registered
  std::uint32_t reserved = 0;
};
inline constexpr std::size_t kWelcomeFds = 5;
static_assert(kWelcomeFds <= kMaxPassedFds);

// Any time after: a region came (with its descriptor) or went.
struct RegionNotice {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint32_t key = 0;
  std::uint32_t access = 0;
  std::uint32_t removed = 0;
  std::uint32_t reserved = 0;
};

inline constexpr std::uint64_t kMagic = 0x31'6d'68'73'74'61'65'6cULL;  // "leatshm1"

// All of it non-blocking. `name` is in the abstract name space.
Fd listen_at(const std::string& name);
Fd connect_to(const std::string& name);
// The effective user of the process at the other end, as it was when it connected.
bool same_user(int socket);

}  // namespace leat::detail::shm
