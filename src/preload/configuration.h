// What the environment says to libleat_preload.so, read once.
#pragma once

#include <sys/socket.h>

#include <chrono>

namespace leat::preload {

enum class Level { kError, kWarn, kInfo, kDebug };

// Whether a line of this level is wanted (LEAT_LOG_LEVEL, default warn).
bool log_enabled(Level level) noexcept;
// Writes one line, to standard error or to the file that LEAT_LOG_FILE names. Keeps errno.
void log(Level level, const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

// LEAT_PRELOAD_DEBUG: whether descriptors that escape to the kernel are reported (escapes.h).
bool reports_escapes() noexcept;

// LEAT_SPIN_US: how long to look for data before sleeping; "inf" is a second at a time.
std::chrono::nanoseconds spin_time() noexcept;

// LEAT_PRELOAD_ALL: whether also connections are carried that are not worth it
// (short_connections.h).
bool carries_all() noexcept;

// LEAT_PRELOAD_MEET: the folder where containers and users meet (meeting_folder.h); null: none.
const char* meeting_folder() noexcept;

// Whether LEAT_PRELOAD_MATCH allows to carry connections to (or accepted at) this address.
bool matches(const sockaddr_storage& storage) noexcept;

}  // namespace leat::preload
