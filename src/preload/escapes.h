// The debug mode: reports where a carried connection gets out of sight. What a program does with it
// there goes past leat, to a kernel socket that carries nothing but doorbells. Uses by raw system
// calls or io_uring cannot be seen; the bytes that they send can, at the other end, which resets
// the connection (Connection::check_rings()).
#pragma once

namespace leat::preload {

// The kernel has given out this number: if it is still known, it was closed out of sight.
void report_reuse(int fd) noexcept;

}  // namespace leat::preload
