/* leat's sockets for C: the BSD calls with a prefix. A program of TCP sockets becomes leat's by
 * names.
 *
 * Each call means what the BSD call of that name means for TCP sockets on Linux: arguments, units,
 * results (-1 and errno on failure), what blocks and until when, SIGPIPE, SO_ERROR. docs/sockets.md
 * has a table of every call and option, and of what differs. leat_last_error() has a sentence for
 * each failure. Both ends must use leat; each by this API, or by leat's others.
 *
 * Handles are real descriptors of the kernel. Close them with leat_close; pass them to the
 * functions here, and for reading also to the system's poll, select and epoll: a handle is readable
 * when a receiving call may find something; then call without blocking until EAGAIN. A descriptor
 * that is no handle is handed on to the system's call, so that a program may use these for all its
 * files.
 *
 * Ownership: memory is the caller's and is not kept past a call. A handle lives until the last of
 * its descriptors is closed and no call uses it. Threads: any call from any thread, at the same
 * time, as with TCP. Processes: handles stay with the process that made them; in a child of fork()
 * they can only be closed (else EOPNOTSUPP), and it keeps no connection alive; exec ends them.
 * Signals: handlers must not call these functions. Cancellation: the calls that sleep are
 * cancellation points. Memory that cannot be accessed is a fault, not EFAULT. No exception leaves
 * these functions. */
#ifndef LEAT_C_H
#define LEAT_C_H

#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "leat/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- Making connections.
 * leat_socket: family AF_INET or AF_INET6 (else EAFNOSUPPORT), type SOCK_STREAM (else
 * EPROTONOSUPPORT) with SOCK_NONBLOCK and SOCK_CLOEXEC. */
LEAT_EXPORT int leat_socket(int family, int type, int protocol);
LEAT_EXPORT int leat_bind(int handle, const struct sockaddr* address, socklen_t bytes);
/* From now on connections come to stand by themselves, in a thread of leat's, `backlog` at most. */
LEAT_EXPORT int leat_listen(int handle, int backlog);
LEAT_EXPORT int leat_accept(int handle, struct sockaddr* address, socklen_t* bytes);
LEAT_EXPORT int leat_accept4(int handle, struct sockaddr* address, socklen_t* bytes, int flags);
/* Done when leat's handshake is. Does not block with O_NONBLOCK: EINPROGRESS, then POLLOUT and
 * SO_ERROR. Besides TCP's errors: EPROTO if leat does not listen there, EACCES if TLS fails, ENODEV
 * if the device asked for cannot be had. May be tried again on the same handle. */
LEAT_EXPORT int leat_connect(int handle, const struct sockaddr* address, socklen_t bytes);
/* By URI, "leat://host:port?transport=ring" or "host:port"; a new handle. They block. */
LEAT_EXPORT int leat_connect_uri(const char* uri);
LEAT_EXPORT int leat_listen_uri(const char* uri);
LEAT_EXPORT int leat_shutdown(int handle, int how);
/* What was sent goes on in the background, for the setting linger_ms, also while the program exits;
 * with SO_LINGER, and with unread bytes, as TCP. Of a handle that is open when the program ends,
 * what the device has not sent yet is lost. */
LEAT_EXPORT int leat_close(int handle);

/* --- Bytes. Flags: MSG_DONTWAIT, MSG_NOSIGNAL, MSG_MORE (ignored); for receiving MSG_PEEK,
 * MSG_WAITALL, MSG_TRUNC. MSG_OOB, MSG_ERRQUEUE, MSG_FASTOPEN and MSG_ZEROCOPY give EOPNOTSUPP.
 * Sending where nobody can receive any more gives EPIPE and, without MSG_NOSIGNAL, SIGPIPE. */
LEAT_EXPORT ssize_t leat_send(int handle, const void* data, size_t bytes, int flags);
LEAT_EXPORT ssize_t leat_recv(int handle, void* data, size_t bytes, int flags);
/* The address is not looked at, as on a connected TCP socket; leat_recvfrom sets its size to 0. */
LEAT_EXPORT ssize_t leat_sendto(int handle, const void* data, size_t bytes, int flags,
                                const struct sockaddr* address, socklen_t address_bytes);
LEAT_EXPORT ssize_t leat_recvfrom(int handle, void* data, size_t bytes, int flags,
                                  struct sockaddr* address, socklen_t* address_bytes);
/* Control messages are not looked at, and none comes. */
LEAT_EXPORT ssize_t leat_sendmsg(int handle, const struct msghdr* message, int flags);
LEAT_EXPORT ssize_t leat_recvmsg(int handle, struct msghdr* message, int flags);
LEAT_EXPORT ssize_t leat_read(int handle, void* data, size_t bytes);
LEAT_EXPORT ssize_t leat_write(int handle, const void* data, size_t bytes);
LEAT_EXPORT ssize_t leat_readv(int handle, const struct iovec* parts, int count);
LEAT_EXPORT ssize_t leat_writev(int handle, const struct iovec* parts, int count);

/* --- Waiting, for handles and the kernel's descriptors together. Times as of the BSD calls:
 * milliseconds, negative for ever; timeval; timespec. */
LEAT_EXPORT int leat_poll(struct pollfd* fds, nfds_t count, int timeout_ms);
LEAT_EXPORT int leat_ppoll(struct pollfd* fds, nfds_t count, const struct timespec* timeout,
                           const sigset_t* signals);
LEAT_EXPORT int leat_select(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
                            struct timeval* timeout);
LEAT_EXPORT int leat_pselect(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
                             const struct timespec* timeout, const sigset_t* signals);
/* Level- and edge-triggered, EPOLLONESHOT; a set may be in another. EPOLLEXCLUSIVE on a handle
 * wakes all. Wait for a set that holds handles only with the functions here. */
LEAT_EXPORT int leat_epoll_create(int size);
LEAT_EXPORT int leat_epoll_create1(int flags);
LEAT_EXPORT int leat_epoll_ctl(int set, int operation, int handle, struct epoll_event* event);
LEAT_EXPORT int leat_epoll_wait(int set, struct epoll_event* events, int most, int timeout_ms);
LEAT_EXPORT int leat_epoll_pwait(int set, struct epoll_event* events, int most, int timeout_ms,
                                 const sigset_t* signals);
LEAT_EXPORT int leat_epoll_pwait2(int set, struct epoll_event* events, int most,
                                  const struct timespec* timeout, const sigset_t* signals);

/* --- Options and names. Options are those of the kernel's TCP connection beside, which has the
 * addresses and watches whether the peer lives: its errors are their errors. */
LEAT_EXPORT int leat_setsockopt(int handle, int level, int option, const void* value,
                                socklen_t bytes);
LEAT_EXPORT int leat_getsockopt(int handle, int level, int option, void* value, socklen_t* bytes);
LEAT_EXPORT int leat_getsockname(int handle, struct sockaddr* address, socklen_t* bytes);
LEAT_EXPORT int leat_getpeername(int handle, struct sockaddr* address, socklen_t* bytes);
/* F_GETFL, F_SETFL (O_NONBLOCK), F_GETFD, F_SETFD, F_DUPFD, F_DUPFD_CLOEXEC; else EINVAL. */
LEAT_EXPORT int leat_fcntl(int handle, int command, ...);
/* FIONREAD, FIONBIO; else what the kernel's TCP socket gives. */
LEAT_EXPORT int leat_ioctl(int handle, unsigned long request, ...);
/* O_NONBLOCK, in one call. */
LEAT_EXPORT int leat_set_nonblocking(int handle, int on);

/* --- leat's own */
/* The handle itself, if it can receive or accept: see above. */
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
