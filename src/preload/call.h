// Shared by the functions that stand in front of the C library's.
#pragma once

#include <cerrno>
#include <cstdio>
#include <utility>

#include "leat/export.h"
#include "preload/descriptors.h"
#include "preload/escapes.h"
#include "preload/meeting.h"
#include "preload/real.h"

// Visible to programs, in front of libc's of the same name.
#define LEAT_CALL extern "C" LEAT_EXPORT

namespace leat::preload {

namespace posix = leat::posix;  // for the functions that are C's

// Returns the carried connection of a descriptor, if it is one; decides first about a socket that
// may become one. With `wait`, blocks until that is decided, and is a cancellation point. An
// accepted socket that still waits for its offer is returned as it is, without memory: see
// undecided_error().
Reference find_carried(int fd, bool wait);

// For calls that transfer bytes, with their flags.
inline Reference carried(int fd, int flags = 0) {
  if (fd < 0 || fd >= kMostDescriptors ||
      descriptor_entry(fd).load(std::memory_order_relaxed) == nullptr) [[likely]]
    return {};
  return find_carried(fd, (flags & MSG_DONTWAIT) == 0);
}

// For other calls: empty too where it is not decided.
inline Reference known_carried(int fd) {
  Reference object = find_carried(fd, false);
  return object.is(Kind::kConnection) ? std::move(object) : Reference();
}

// Around every fork, with the lock that a child finds held by nobody (calls_process.cc).
void before_fork() noexcept;
void after_fork_in_parent() noexcept;
void after_fork_in_child() noexcept;

// The program closes a descriptor: before the kernel does (calls_descriptor.cc).
void closing(int fd) noexcept;
// The C library is about to close the descriptor of a stream, past our close(). A stream
// of stdio_streams.h closes its own by our close().
void closing_stream(FILE* file) noexcept;

// The kernel gave this number just now: what is known of it was closed out of our sight.
inline void forget_stale(int fd) {
  if (descriptor_entry(fd).load(std::memory_order_relaxed) == nullptr) return;
  report_reuse(fd);
  forget(fd);
}

}  // namespace leat::preload
