/* The names of TCP sockets, made leat's: include it after the system's headers. Descriptors that
 * are no sockets of leat's go on to the system, so that read, write and close serve files too. */
#ifndef LEAT_NAMES_H
#define LEAT_NAMES_H

#include <leat/c.h>

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
