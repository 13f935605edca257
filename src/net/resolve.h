// Resolves host names to socket addresses with a deadline, which getaddrinfo(3) lacks.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace leat::detail {

struct ResolvedAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

// Returns at least one address, in the order to try. Numeric addresses are converted at once; a
// name is looked up in a thread that is left behind at the deadline. Throws kAddress, kTimeout.
std::vector<ResolvedAddress> resolve(const std::string& host, std::uint16_t port,
                                     Deadline deadline);

// The same for listening; an empty host gives all addresses. Blocks for as long as the look-up
// does.
std::vector<ResolvedAddress> resolve_to_listen(const std::string& host, std::uint16_t port);

}  // namespace leat::detail
