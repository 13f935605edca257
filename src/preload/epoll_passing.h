// A set of epoll in a program that inherited it from the one that executed it.
#pragma once

namespace leat::preload {

// Whether the kernel has a set there.
bool is_set(int fd) noexcept;
// Makes it one that leat knows. False: memory has run out, and it is the kernel's alone.
bool add_set(int fd) noexcept;
// Reads what EpollSet::tell() wrote, once all descriptors that it may name are known. Closes the
// hidden descriptor.
void take_over_set(int fd, int hidden);

}  // namespace leat::preload
