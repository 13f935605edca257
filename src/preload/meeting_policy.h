// Which users may meet in a folder (meeting_folder.h): the file `policy` in it says so.
//
// Without the file only processes of one user meet. With it only those meet that one of its lines
// allows, as they connect (the first) to a listener (the second) at a port:
//
//   allow user:1000 user:999 6379      # numbers, as this process's user namespace sees them
//   allow group:3000 * 5000-5010       # * is every user that has a number here, or every port
//
// The file must be a regular one of root's or of the folder's owner that nobody else may write. If
// it is not, or a line cannot be read, nobody meets. Each connection reads it anew.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace leat::preload {

// A process as the kernel reports it.
struct Party {
  uid_t user = static_cast<uid_t>(-1);  // this number stands for no user, and is allowed nothing
  bool knows_groups = false;            // if not, it may be in any
  std::size_t group_count = 0;
  std::array<gid_t, 65> groups{};  // the first is that of the process
};

// The peer of a connected unix socket; of one that listens, the process that called listen().
Party party_at(int unix_fd) noexcept;
// This process, as its peers see it.
Party this_party() noexcept;
// All that is known of the owner of a file.
Party party_of_user(uid_t user) noexcept;

// Why the two may not meet, or null: they may. Reads `folder`/policy; keeps errno. Any thread.
const char* why_not_meet(const char* folder, const Party& connector, const Party& listener,
                         std::uint16_t port) noexcept;

}  // namespace leat::preload
