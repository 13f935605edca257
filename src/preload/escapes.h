// The debug mode: says where a carried connection gets out of sight, so that what is done with it
// there goes past leat, to a kernel socket that carries nothing but rings of the bell. What is used
// by raw system calls or io_uring cannot be seen, but at the other end that bytes came so can.
#pragma once

#include <string>

namespace leat::preload {

// The kernel has given out this number: if it is still known, it was closed out of sight.
void report_reuse(int fd) noexcept;
// What came from there over the kernel's connection is no ring.
void report_strange_bytes(const std::string& peer) noexcept;

}  // namespace leat::preload
