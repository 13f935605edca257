/* leat's sockets for C: the BSD calls with a prefix. A program that uses TCP sockets is ported by
 * renaming its calls; leat/names.h renames them without a change.
 *
 * Each call means what the BSD call of that name means for TCP sockets on Linux: arguments, units,
 * results (-1 and errno on failure), what blocks and until when, SIGPIPE, SO_ERROR. docs/sockets.md
 * lists every call and option, and what differs. leat_last_error() describes each failure in a
 * sentence. Both ends must use leat, by this or another of its APIs.
 *
 * Handles are real descriptors of the kernel. Close them with leat_close; pass them to the
 * functions here, and for reading also to the system's poll, select and epoll: a handle is readable
 * when a receiving call may find something; then call without blocking until EAGAIN. These
 * functions pass a descriptor that is not a handle on to the system's call, so that a program may
 * use them for all its files.
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
/* From now on a thread of leat's completes connections, at most `backlog` that await accept. */
LEAT_EXPORT int leat_listen(int handle, int backlog);
LEAT_EXPORT int leat_accept(int handle, struct sockaddr* address, socklen_t* bytes);
LEAT_EXPORT int leat_accept4(int handle, struct sockaddr* address, socklen_t* bytes, int flags);
/* Returns when leat's handshake is complete. With O_NONBLOCK it does not block: EINPROGRESS, then
 * POLLOUT and SO_ERROR. Besides TCP's errors: EPROTO if the listener is not leat, EACCES if TLS
 * fails, ENODEV if the requested device cannot be used. May be called again on the same handle. */
LEAT_EXPORT int leat_connect(int handle, const struct sockaddr* address, socklen_t bytes);
/* Connect to, or listen at, "leat://host:port?transport=ring" or "host:port". They block, and
 * return a new handle or -1. */
LEAT_EXPORT int leat_connect_uri(const char* uri);
LEAT_EXPORT int leat_listen_uri(const char* uri);
LEAT_EXPORT int leat_shutdown(int handle, int how);
/* A background thread goes on sending what was sent before, for the setting linger_ms, also while
 * the program exits; with SO_LINGER, and with unread bytes, as TCP. If a handle is open when the
 * program ends, what the device has not sent yet is lost. */
LEAT_EXPORT int leat_close(int handle);

/* --- Bytes. Flags: MSG_DONTWAIT, MSG_NOSIGNAL, MSG_MORE (ignored); for receiving MSG_PEEK,
 * MSG_WAITALL, MSG_TRUNC. MSG_OOB, MSG_ERRQUEUE, MSG_FASTOPEN and MSG_ZEROCOPY give EOPNOTSUPP.
 * Sending to a peer that can receive no more gives EPIPE and, without MSG_NOSIGNAL, SIGPIPE. */
LEAT_EXPORT ssize_t leat_send(int handle, const void* data, size_t bytes, int flags);
LEAT_EXPORT ssize_t leat_recv(int handle, void* data, size_t bytes, int flags);
/* They ignore the address, as on a connected TCP socket; leat_recvfrom sets its size to 0. */
LEAT_EXPORT ssize_t leat_sendto(int handle, const void* data, size_t bytes, int flags,
                                const struct sockaddr* address, socklen_t address_bytes);
LEAT_EXPORT ssize_t leat_recvfrom(int handle, void* data, size_t bytes, int flags,
                                  struct sockaddr* address, socklen_t* address_bytes);
/* leat_sendmsg ignores control messages; leat_recvmsg returns none. */
LEAT_EXPORT ssize_t leat_sendmsg(int handle, const struct msghdr* message, int flags);
LEAT_EXPORT ssize_t leat_recvmsg(int handle, struct msghdr* message, int flags);
LEAT_EXPORT ssize_t leat_read(int handle, void* data, size_t bytes);
LEAT_EXPORT ssize_t leat_write(int handle, const void* data, size_t bytes);
LEAT_EXPORT ssize_t leat_readv(int handle, const struct iovec* parts, int count);
LEAT_EXPORT ssize_t leat_writev(int handle, const struct iovec* parts, int count);

/* --- Waiting, for handles and the kernel's descriptors together. Times as in the BSD calls:
 * milliseconds (negative: for ever), timeval, timespec. */
LEAT_EXPORT int leat_poll(struct pollfd* fds, nfds_t count, int timeout_ms);
LEAT_EXPORT int leat_ppoll(struct pollfd* fds, nfds_t count, const struct timespec* timeout,
                           const sigset_t* signals);
LEAT_EXPORT int leat_select(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
                            struct timeval* timeout);
LEAT_EXPORT int leat_pselect(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
                             const struct timespec* timeout, const sigset_t* signals);
/* Level- and edge-triggered, EPOLLONESHOT; a set may contain another. EPOLLEXCLUSIVE on a handle
 * wakes all waiters. Wait on a set that contains handles only with these functions. */
LEAT_EXPORT int leat_epoll_create(int size);
LEAT_EXPORT int leat_epoll_create1(int flags);
LEAT_EXPORT int leat_epoll_ctl(int set, int operation, int handle, struct epoll_event* event);
LEAT_EXPORT int leat_epoll_wait(int set, struct epoll_event* events, int most, int timeout_ms);
LEAT_EXPORT int leat_epoll_pwait(int set, struct epoll_event* events, int most, int timeout_ms,
                                 const sigset_t* signals);
LEAT_EXPORT int leat_epoll_pwait2(int set, struct epoll_event* events, int most,
                                  const struct timespec* timeout, const sigset_t* signals);

/* --- Options and names. Options are set on the kernel's TCP connection beside the channel, which
 * has the addresses and detects the peer's death; its errors are the calls' errors. */
LEAT_EXPORT int leat_setsockopt(int handle, int level, int option, const void* value,
                                socklen_t bytes);
LEAT_EXPORT int leat_getsockopt(int handle, int level, int option, void* value, socklen_t* bytes);
LEAT_EXPORT int leat_getsockname(int handle, struct sockaddr* address, socklen_t* bytes);
LEAT_EXPORT int leat_getpeername(int handle, struct sockaddr* address, socklen_t* bytes);
/* F_GETFL, F_SETFL (O_NONBLOCK), F_GETFD, F_SETFD, F_DUPFD, F_DUPFD_CLOEXEC; others: EINVAL. */
LEAT_EXPORT int leat_fcntl(int handle, int command, ...);
/* FIONREAD, FIONBIO; others go to the kernel's TCP socket. */
LEAT_EXPORT int leat_ioctl(int handle, unsigned long request, ...);
/* Sets (`on` is not 0) or clears O_NONBLOCK. */
LEAT_EXPORT int leat_set_nonblocking(int handle, int on);

/* --- leat's own */
/* Returns the handle itself, to be polled for reading (see above), or -1 and EBADF. */
LEAT_EXPORT int leat_poll_fd(int handle);
/* Writes "ring on shm, ...": which transport carries a connected handle, and why. Returns the
 * length as snprintf does, or -1. */
LEAT_EXPORT int leat_description(int handle, char* text, size_t bytes);
/* What failed last in this thread, and what to do; valid until this thread's next call. */
LEAT_EXPORT const char* leat_last_error(void);
LEAT_EXPORT const char* leat_version(void);

#ifdef __cplusplus
}
#endif

#endif
