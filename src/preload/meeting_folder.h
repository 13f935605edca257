// Places for offers (meeting.h) in a folder that containers and users share on purpose
// (LEAT_PRELOAD_MEET), instead of names that one network namespace and one user see.
//
// A listener's place is a unix socket in the folder, leatVERSION.PORT.CODE.ID, whose ID no other
// gets. Symbolic links ADDRESS.leatVERSION.PORT.CODE.ID, which nobody follows, say at which
// addresses its network namespace has the listener; an address of loopback means something in one
// namespace only, so its link names that too. A connector marks its SYN only if such a link names
// the address that it connects to, belongs to the owner of the socket, the socket is alive, the
// policy may allow its owner, and no router lies between: where addresses are changed on the way,
// the two ends would know one connection by two names.
//
// A process that finds the name of a dead socket removes it. Nothing in the folder is trusted: a
// socket that answers is asked for its name and for its user.
#pragma once

#include <sys/un.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "preload/address.h"

namespace leat::preload {

// Codes from here on are of places in the folder.
inline constexpr unsigned kFirstFolderCode = 256;
inline constexpr unsigned kFolderCodes = 64;
inline bool is_in_folder(unsigned code) noexcept { return code >= kFirstFolderCode; }

struct FolderPlace {
  std::uint32_t id = 0;
  std::uint32_t code = 0;  // 0: there is none
};

// The places of the listeners at one address.
struct FolderPlaces {
  static constexpr std::size_t kMost = 16;
  std::array<FolderPlace, kMost> list{};
  std::size_t count = 0;

  // The one with that code; without a code if there is none or more than one.
  FolderPlace with(unsigned code) const noexcept;
};

enum class Opened {
  kBound,
  kTaken,     // the code is in use at this address
  kUnusable,  // the folder is, which was logged
};

// Binds a unix socket as the place of the listener `fd`, which has that port.
Opened bind_in_folder(int meeting, int fd, std::uint16_t port, unsigned code) noexcept;

// Those where an offer for a connection to that address may be left.
// `fd` is the socket that will connect.
FolderPlaces places_for(int fd, const Address& to) noexcept;
// 0, or -1 and errno; EPROTO if what answers is not that place.
int connect_in_folder(int fd, std::uint16_t port, const FolderPlace& place) noexcept;

// The folder that holds a bound place, also one that came from another process; empty if none does.
std::string folder_of_place(int meeting_fd) noexcept;
// What the name of a bound place says. False: it is not the name of a place.
bool parse_folder_place(const sockaddr_un& name, unsigned& port, unsigned& code) noexcept;

}  // namespace leat::preload
