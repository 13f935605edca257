/* Renames the calls of TCP sockets to leat's. Have the compiler include it in every file of a
 * program, before all other headers:
 *
 *   cc -D_GNU_SOURCE -include leat/names.h ...      (pkg-config --cflags --libs leat-names)
 *
 * A file compiled without it would call the system's poll or read with leat's handles and wait for
 * ever; with pkg-config's flags for leat-names such a program does not link. This header includes
 * the system's headers, so feature macros (_GNU_SOURCE) belong on the command line. Descriptors
 * other than leat's handles go to the system's calls, so that read, write and close serve files
 * too. For C only: C++ uses these names for methods as well. */
#ifndef LEAT_NAMES_H
#define LEAT_NAMES_H

#ifdef __cplusplus
#error "leat/names.h is for C: C++ programs have leat::Socket, or run unchanged under leat-run."
#endif

/* The system's own declarations come first, so that none of them is renamed. */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "leat/c.h"

#define socket leat_socket
#define bind leat_bind
#define listen leat_listen
#define accept leat_accept
#define accept4 leat_accept4
#define connect leat_connect
#define shutdown leat_shutdown
#define close leat_close
#define send leat_send
#define sendto leat_sendto
#define sendmsg leat_sendmsg
#define recv leat_recv
#define recvfrom leat_recvfrom
#define recvmsg leat_recvmsg
#define read leat_read
#define write leat_write
#define readv leat_readv
#define writev leat_writev
#define poll(fds, count, timeout) leat_poll(fds, count, timeout)
#define ppoll leat_ppoll
#define select leat_select
#define pselect leat_pselect
#define epoll_create leat_epoll_create
#define epoll_create1 leat_epoll_create1
#define epoll_ctl leat_epoll_ctl
#define epoll_wait leat_epoll_wait
#define epoll_pwait leat_epoll_pwait
#define epoll_pwait2 leat_epoll_pwait2
#define setsockopt leat_setsockopt
#define getsockopt leat_getsockopt
#define getsockname leat_getsockname
#define getpeername leat_getpeername
#define fcntl leat_fcntl
#define ioctl leat_ioctl

#endif
