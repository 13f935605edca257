// Messages and descriptors over SOCK_SEQPACKET unix sockets, and the identity of the peer. No call
// blocks.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"

namespace leat::detail {

inline constexpr std::size_t kMaxPassedFds = 5;

// The address of the socket at `path`; none if that is empty or too long.
std::optional<sockaddr_un> unix_address(const std::string& path) noexcept;

// The process at the other end, as it was when it connected, or when it began to listen.
std::optional<ucred> peer_of(int socket) noexcept;

// Whether the process that peer_of() numbers still lives, so that the number is no other's. Where
// Linux cannot tell (before 6.5): true.
bool peer_may_live(int socket) noexcept;
// The PID namespace that this process's numbers of processes belong to; 0 if /proc does not tell.
std::uint64_t pid_namespace() noexcept;

// Sends one message with at most kMaxPassedFds descriptors. Returns false if there is no room now.
// Throws kPeerDied, kSystem.
bool send_message(int socket, std::span<const std::byte> message, std::span<const int> fds);

enum class ReceiveMessage { kMessage, kNothing, kPeerGone };
// Fills all of `message`; a message of another size or with more than `max_fds` descriptors counts
// as kPeerGone, because a peer that sends one is not leat. Throws kResource if this process has no
// room for the descriptors.
ReceiveMessage receive_message(int socket, std::span<std::byte> message, std::size_t max_fds,
                               std::vector<Fd>& fds);

}  // namespace leat::detail
