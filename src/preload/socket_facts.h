// What the kernel says of a socket.
#pragma once

#include <sys/socket.h>

#include <cstdint>

#include "preload/address.h"

namespace leat::preload {

// An option that is a number; -1 if the socket does not have it.
int option(int fd, int level, int name) noexcept;
void set_option(int fd, int level, int name, int value) noexcept;

// The sizes of its buffers that the program has set, as the kernel tells them; 0: the kernel
// chooses.
struct Buffers {
  std::uint32_t send;
  std::uint32_t receive;
};
Buffers program_buffers(int fd) noexcept;

// Port 0 if it has none (any more).
Address local_address(int fd) noexcept;
Address peer_address(int fd) noexcept;
// Whether a connection between them stays on this host, as far as the addresses alone tell.
bool is_local(const Address& peer, const Address& own) noexcept;
// Whether the peer's address is one of this host's, so that its SYN was not made elsewhere.
bool is_of_this_host(const sockaddr_storage& storage, const Address& own) noexcept;

// Whether it is a TCP socket.
bool is_tcp(int fd) noexcept;
// A TCP socket that is neither connected nor listening.
bool is_connectable(int fd) noexcept;
// Whether an urgent byte came that the program has not read yet.
bool has_urgent(int fd) noexcept;
// Names a socket whatever its descriptors are; 0 if there is none.
std::uint64_t cookie_of(int fd) noexcept;

// SO_LINGER with a time of 0: the close is a reset.
bool resets_at_close(int fd) noexcept;

}  // namespace leat::preload
