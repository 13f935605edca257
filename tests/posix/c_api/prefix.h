// Included before every file of posix_cases_c_api: the same cases, by the calls of leat/c.h. What
// the macros must not touch is included here first.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "leat/c.h"

#define socket(...) leat_socket(__VA_ARGS__)
#define bind(...) leat_bind(__VA_ARGS__)
#define listen(...) leat_listen(__VA_ARGS__)
#define accept(...) leat_accept(__VA_ARGS__)
#define accept4(...) leat_accept4(__VA_ARGS__)
#define connect(...) leat_connect(__VA_ARGS__)
#define shutdown(...) leat_shutdown(__VA_ARGS__)
#define close(...) leat_close(__VA_ARGS__)
#define send(...) leat_send(__VA_ARGS__)
#define sendto(...) leat_sendto(__VA_ARGS__)
#define sendmsg(...) leat_sendmsg(__VA_ARGS__)
#define recv(...) leat_recv(__VA_ARGS__)
#define recvfrom(...) leat_recvfrom(__VA_ARGS__)
#define recvmsg(...) leat_recvmsg(__VA_ARGS__)
#define read(...) leat_read(__VA_ARGS__)
#define write(...) leat_write(__VA_ARGS__)
#define readv(...) leat_readv(__VA_ARGS__)
#define writev(...) leat_writev(__VA_ARGS__)
#define poll(...) leat_poll(__VA_ARGS__)
#define ppoll(...) leat_ppoll(__VA_ARGS__)
#define select(...) leat_select(__VA_ARGS__)
#define pselect(...) leat_pselect(__VA_ARGS__)
#define epoll_create(...) leat_epoll_create(__VA_ARGS__)
#define epoll_create1(...) leat_epoll_create1(__VA_ARGS__)
#define epoll_ctl(...) leat_epoll_ctl(__VA_ARGS__)
#define epoll_wait(...) leat_epoll_wait(__VA_ARGS__)
#define epoll_pwait(...) leat_epoll_pwait(__VA_ARGS__)
#define epoll_pwait2(...) leat_epoll_pwait2(__VA_ARGS__)
#define setsockopt(...) leat_setsockopt(__VA_ARGS__)
#define getsockopt(...) leat_getsockopt(__VA_ARGS__)
#define getsockname(...) leat_getsockname(__VA_ARGS__)
#define getpeername(...) leat_getpeername(__VA_ARGS__)
#define fcntl(...) leat_fcntl(__VA_ARGS__)
#define ioctl(...) leat_ioctl(__VA_ARGS__)
// Not a call of leat/c.h, but what a program writes instead.
#define dup(fd) leat_fcntl(fd, F_DUPFD, 0)
