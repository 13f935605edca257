// FILE* on a carried connection. The C library's own streams call the kernel past us, so such a
// stream is made of functions that call us.
#pragma once

#include <cstdio>

#include "preload/signal_safe_lock.h"

namespace leat::preload {

// A stream that reads, writes and closes `fd`; null and errno if memory is out.
FILE* open_stream(int fd, const char* mode);
// The descriptor of such a stream, or -1.
int stream_descriptor(const FILE* file);
// For stdin, stdout and stderr once their descriptor is a carried connection. The C library's own
// object is left as it is; a holder of a pointer to it does not notice.
void replace_standard_stream(int fd);
// To be held across a fork.
SignalSafeLock& lock_of_streams() noexcept;

}  // namespace leat::preload
