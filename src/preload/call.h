// What the functions that stand in front of the C library's have in common.
#pragma once

#include <cerrno>

#include "leat/export.h"
#include "preload/descriptors.h"
#include "preload/meeting.h"
#include "preload/real.h"

// Visible to programs, in front of libc's of the same name.
#define LEAT_CALL extern "C" LEAT_EXPORT

namespace leat::preload {

// The carried connection of a descriptor, if it is one; decides first about a socket whose
// handshake has ended. `wait`: as a blocking call does, until it has; then a cancellation point.
Reference carried(int fd, bool wait);

// For calls that transfer bytes.
inline Reference carried(int fd) {
  if (fd < 0 || fd >= kMostDescriptors ||
      descriptor_table[fd].load(std::memory_order_relaxed) == nullptr) [[likely]]
    return {};
  return carried(fd, true);
}

}  // namespace leat::preload
