// What the two SYNs of a connection say by their maximum segment sizes (meeting.h).
#pragma once

#include <netinet/tcp.h>

#include "preload/meeting_folder.h"

namespace leat::preload {

// What a connector's SYN can say of its user.
inline constexpr unsigned kUserCodes = 256;
// What it says instead if the offer is to be left in a folder.
inline constexpr int kOffersInFolder = static_cast<int>(kUserCodes);
// The codes of listeners, below those of places in a folder.
inline constexpr unsigned kCodes = kFirstFolderCode;

// Whether a size is smaller than any listener's outside of folders: then the mark of one may have
// been cut on its way.
bool may_be_cut(int size) noexcept;

// The size of a listener with that code, and back: -1 if it is none. listener_code(info) is what a
// connector has learned.
int listener_size(unsigned code) noexcept;
int listener_code(int size) noexcept;
int listener_code(const tcp_info& info) noexcept;

// The size of a connector with that code (of its user, or kOffersInFolder), and back: -1 if it is
// none. sent_connector_code() is what the SYN of a connected socket said in fact, and
// connector_code_of_syn() what has come of it to the listener for an accepted socket.
int connector_size(int code) noexcept;
int connector_code(int size) noexcept;
int sent_connector_code(const tcp_info& info) noexcept;
int connector_code_of_syn(int fd) noexcept;

}  // namespace leat::preload
