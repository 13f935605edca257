// How the two ends of a TCP connection find out that both run under leat-run, and share memory.
//
// Nothing is sent to a peer that knows nothing of leat. The TCP handshake itself tells: a listener
// under leat-run sets the maximum segment size of its SYN-ACK to a value that names where offers
// are taken (an abstract unix socket, by port and a code of 256), a connecting socket that of its
// SYN to one that says "I shall offer, as this user". So when connect() or accept() returns both
// ends know what the other is, whichever process accepts. The connecting side then leaves its offer
// (a memfd and the two addresses) in the unix socket's queue, before its connect() returns, or says
// there that it stays with TCP; the acceptor takes it from there by the addresses. An offer that is
// late (connect() did not block, and the program has not come back to it) holds up nobody: until it
// comes the accepted socket is one on which nothing has arrived yet and nothing can be sent. After
// its offer the connecting side sends one byte over TCP, which wakes an acceptor that waits, and
// tells it that an offer that it cannot find is lost.
//
// Where both processes name a folder (meeting_folder.h) the unix socket lies there, and the policy
// of the folder takes the place of "the same user". The sizes are other ones (marks.h), so that no
// end takes a meeting in a folder for one of the other kind.
#pragma once

#include <sys/socket.h>

#include "preload/descriptors.h"

namespace leat::preload {

// Before the kernel's connect(): true if the socket was marked.
bool before_connect(int fd, Reference& socket, const sockaddr* address, socklen_t bytes) noexcept;
// When the kernel says that it is connected (or may be): decides, and becomes a kConnection or
// stays with TCP. While the handshake is still under way, or an accepted socket's offer has not
// come, nothing changes. Keeps errno.
void decide(int fd, Reference& socket) noexcept;
// For what cannot be undone: waits for it, but only for moments. Afterwards it is decided: without
// an offer the connection is shut down.
void decide_now(int fd, Reference& socket) noexcept;
// The program shuts down a socket that may still be undecided. False: it is decided, so do it.
bool shut_undecided(int fd, Reference& socket, int how) noexcept;

// Both processes may use a socket after a fork, but only one would get its offer. Waits for
// nothing.
void decide_before_fork() noexcept;

// What the kernel's accept() on `listening` gave, which is known as that listener, with the address
// of the peer. False: it cannot be used.
bool after_accept(const Reference& listener, int listening, int fd,
                  const sockaddr_storage& peer) noexcept;

// Maps the memory of a connection; `end` as for Connection::attach(). False if it is not what it
// should be.
bool attach_memory(Object& object, int memfd, unsigned side, const EndHold& end = {}) noexcept;

}  // namespace leat::preload
