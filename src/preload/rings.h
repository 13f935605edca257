// io_uring, whose requests act on descriptors past the C library and so past this one.
#pragma once

namespace leat::preload {

// Whether this process has a ring: from then on its new connections stay with TCP, on which rings
// work as ever. (syscall() lets none be made; liburing makes its own system calls.)
bool has_ring() noexcept;

}  // namespace leat::preload
