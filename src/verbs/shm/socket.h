// The unix socket beneath a shm connection: it carries descriptors, identifies the peer, and closes
// when the peer dies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/fd.h"
#include "base/random.h"
#include "base/unix_socket.h"

namespace leat::detail::shm {

// The first message, from the active side.
struct Join {
  std::uint64_t magic = 0;
  Secret secret{};
  std::uint32_t receive_depth = 0;
  std::uint32_t asymmetric = 0;  // it registered for heavy barriers
};

// The answer. With it come the shared memory and four event descriptors: the passive side's send
// and receive events, then the active side's.
struct Welcome {
  std::uint64_t magic = 0;
  std::uint32_t depth_to_passive = 0;
  std::uint32_t depth_to_active = 0;
  std::uint32_t asymmetric = 0;  // both registered
  std::uint32_t reserved = 0;
};
inline constexpr std::size_t kWelcomeFds = 5;
static_assert(kWelcomeFds <= kMaxPassedFds);

// At any time later: a region came (with its descriptor) or went.
struct RegionNotice {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint32_t key = 0;
  std::uint32_t access = 0;
  std::uint32_t removed = 0;
  std::uint32_t reserved = 0;
};

inline constexpr std::uint64_t kMagic = 0x32'6d'68'73'74'61'65'6cULL;  // "leatshm2"

// All functions are non-blocking. `name` is in the abstract name space.
Fd listen_at(const std::string& name);
Fd connect_to(const std::string& name);
// Whether the process at the other end had this process's effective user when it connected.
bool same_user(int socket);

}  // namespace leat::detail::shm
