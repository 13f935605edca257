/* leat's sockets for C: the BSD names with a prefix, handles that are file descriptors, -1 and
 * errno on failure, and leat_last_error() for the sentence.
 *
 * A handle is a real descriptor number, so it never clashes with another file; use it only with the
 * functions here (close it with leat_close). Threads: as for TCP sockets, one thread may send while
 * another receives on a handle. Nothing is ever thrown through these functions. */
#ifndef LEAT_C_H
#define LEAT_C_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "leat/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A new socket; family AF_INET or AF_INET6, type SOCK_STREAM (with SOCK_NONBLOCK and SOCK_CLOEXEC
 * as for socket(2)). */
LEAT_EXPORT int leat_socket(int family, int type, int protocol);
LEAT_EXPORT int leat_bind(int handle, const struct sockaddr* address, socklen_t bytes);
LEAT_EXPORT int leat_listen(int handle, int backlog);
LEAT_EXPORT int leat_accept(int handle, struct sockaddr* address, socklen_t* bytes);
LEAT_EXPORT int leat_connect(int handle, const struct sockaddr* address, socklen_t bytes);
/* Connects by URI, "leat://host:port?transport=ring" or "host:port"; returns a new handle. */
LEAT_EXPORT int leat_connect_uri(const char* uri);
/* Listens at a URI; returns a new handle. */
LEAT_EXPORT int leat_listen_uri(const char* uri);

/* flags: MSG_DONTWAIT, MSG_NOSIGNAL (implied), and for recv MSG_PEEK and MSG_WAITALL; any other
 * gives EOPNOTSUPP. */
LEAT_EXPORT ssize_t leat_send(int handle, const void* data, size_t bytes, int flags);
LEAT_EXPORT ssize_t leat_recv(int handle, void* data, size_t bytes, int flags);
LEAT_EXPORT int leat_shutdown(int handle, int how);
LEAT_EXPORT int leat_close(int handle);

/* SOL_SOCKET: SO_RCVTIMEO, SO_SNDTIMEO, SO_ERROR (get), SO_TYPE (get), SO_REUSEADDR, SO_KEEPALIVE;
 * IPPROTO_TCP: TCP_NODELAY. Any other gives ENOPROTOOPT. */
LEAT_EXPORT int leat_setsockopt(int handle, int level, int option, const void* value,
                                socklen_t bytes);
LEAT_EXPORT int leat_getsockopt(int handle, int level, int option, void* value, socklen_t* bytes);
LEAT_EXPORT int leat_getsockname(int handle, struct sockaddr* address, socklen_t* bytes);
LEAT_EXPORT int leat_getpeername(int handle, struct sockaddr* address, socklen_t* bytes);
LEAT_EXPORT int leat_set_nonblocking(int handle, int on);

/* A descriptor for poll(2): readable when leat_recv or leat_accept may have something. After that
 * call them without blocking until EAGAIN. */
LEAT_EXPORT int leat_poll_fd(int handle);

/* "ring on shm, ..." of a connected handle: which transport carries it and why. Returns the length
 * as snprintf does, or -1. */
LEAT_EXPORT int leat_description(int handle, char* text, size_t bytes);

/* What failed last in this thread and what to do; valid until this thread's next call. */
LEAT_EXPORT const char* leat_last_error(void);
LEAT_EXPORT const char* leat_version(void);

#ifdef __cplusplus
}
#endif

#endif
