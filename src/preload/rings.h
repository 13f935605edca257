// io_uring, whose requests act on descriptors past the C library and so past this one.
#pragma once

namespace leat::preload {

// Whether this process has a ring, or is expected to: its new connections stay with TCP, on which
// rings work as ever. (syscall() lets none be made; liburing makes its own system calls.)
bool has_ring() noexcept;
// To be called once, before the program runs. A program that is linked with liburing may listen
// before it makes its first ring and accept by the ring, of which leat-run sees nothing: clients
// that took its listener for one that carries would wait for ever.
void expect_rings_of_liburing() noexcept;

}  // namespace leat::preload
