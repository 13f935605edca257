// Socket options: what a program reads back, on fresh, listening, connecting and accepted sockets.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "case.h"

namespace posix_cases {
namespace {

struct Option {
  const char* name;
  int level;
  int option;
  int value;  // to set
};

constexpr Option kOptions[] = {
    {"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR, 1},
    {"SO_REUSEPORT", SOL_SOCKET, SO_REUSEPORT, 1},
    {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 1},
    {"SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, 65536},
    {"SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, 65536},
    {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE, 1},
    {"SO_BROADCAST", SOL_SOCKET, SO_BROADCAST, 1},
    {"SO_PRIORITY", SOL_SOCKET, SO_PRIORITY, 3},
    {"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, 1},
    {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 7},
    {"TCP_KEEPINTVL", IPPROTO_TCP, TCP_KEEPINTVL, 8},
    {"TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT, 9},
    {"TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT, 30000},
    {"TCP_CORK", IPPROTO_TCP, TCP_CORK, 1},
    {"TCP_QUICKACK", IPPROTO_TCP, TCP_QUICKACK, 1},
    {"TCP_SYNCNT", IPPROTO_TCP, TCP_SYNCNT, 4},
    {"TCP_LINGER2", IPPROTO_TCP, TCP_LINGER2, 5},
    {"IP_TOS", IPPROTO_IP, IP_TOS, 0x10},
    {"IP_TTL", IPPROTO_IP, IP_TTL, 33},
};

void say_option(const Side& side, int fd, const char* name, int level, int option) {
  int value = -1;
  socklen_t length = sizeof(value);
  const int result = getsockopt(fd, level, option, &value, &length);
  if (side.say_result(name, result) == 0) {
    side.say(std::to_string(value) + " in " + std::to_string(length) + " bytes");
  }
}

void say_options(const Side& side, int fd) {
  for (const Option& option : kOptions) {
    // Its value on a connection depends on time.
    if (option.option == TCP_QUICKACK && option.level == IPPROTO_TCP) continue;
    say_option(side, fd, option.name, option.level, option.option);
  }
}

void set_options(const Side& side, int fd) {
  for (const Option& option : kOptions) {
    errno = 0;
    side.say_result(option.name, setsockopt(fd, option.level, option.option, &option.value,
                                            sizeof(option.value)));
  }
}

void say_kind(const Side& side, int fd) {
  say_option(side, fd, "SO_TYPE", SOL_SOCKET, SO_TYPE);
  say_option(side, fd, "SO_DOMAIN", SOL_SOCKET, SO_DOMAIN);
  say_option(side, fd, "SO_PROTOCOL", SOL_SOCKET, SO_PROTOCOL);
  say_option(side, fd, "SO_ACCEPTCONN", SOL_SOCKET, SO_ACCEPTCONN);
  say_option(side, fd, "SO_ERROR", SOL_SOCKET, SO_ERROR);
  say_option(side, fd, "TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY);
}

void say_time(const Side& side, int fd, int option) {
  timeval time{-1, -1};
  socklen_t length = sizeof(time);
  SAY(getsockopt(fd, SOL_SOCKET, option, &time, &length));
  SAY(time.tv_sec);
  SAY(time.tv_usec);
  SAY(length);
}

}  // namespace

Cases option_cases() {
  return {
      {"option.kinds",
       [](Side& side) {
         const int listener = side.listen_here();
         say_kind(side, listener);
         const int fd = accept(listener, nullptr, nullptr);
         say_kind(side, fd);
         struct stat status {};
         SAY(fstat(fd, &status));
         SAY(S_ISSOCK(status.st_mode));
         SAY(isatty(fd));
         SAY(fcntl(fd, F_GETFL));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connect_there();
         say_kind(side, fd);
         side.hear();
       }},

      {"option.fresh",
       [](Side& side) {
         const int fd = socket(AF_INET, SOCK_STREAM, 0);
         set_options(side, fd);
         say_options(side, fd);
       },
       [](Side& side) {
         const int fd = socket(AF_INET6, SOCK_STREAM, 0);
         say_option(side, fd, "IPV6_V6ONLY", IPPROTO_IPV6, IPV6_V6ONLY);
         const int on = 1;
         SAY(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)));
         say_option(side, fd, "IPV6_V6ONLY", IPPROTO_IPV6, IPV6_V6ONLY);
         say_kind(side, fd);
       }},

      {"option.connected",
       [](Side& side) {
         const int fd = side.connected();
         set_options(side, fd);
         say_options(side, fd);
         side.say_data("received", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         set_options(side, fd);
         say_options(side, fd);
         send_text(side, fd, "still works");
       }},

      {"option.inherited",
       [](Side& side) {
         const int listener = side.listen_here();
         set_options(side, listener);
         say_options(side, listener);
         side.tell();
         const int fd = accept(listener, nullptr, nullptr);
         say_options(side, fd);
         side.tell();
       },
       [](Side& side) {
         const int port = side.hear();
         side.hear();
         const int fd = socket(AF_INET, SOCK_STREAM, 0);
         set_options(side, fd);
         SAY(connect_to(fd, port));
         say_options(side, fd);
         side.hear();
       }},

      {"option.linger_inherited",
       [](Side& side) {
         // A close that resets, as the listener says.
         const int listener = side.listen_here();
         const linger reset{1, 0};
         SAY(setsockopt(listener, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)));
         side.tell();
         for (int i = 0; i < 2; ++i) {
           const int fd = accept(listener, nullptr, nullptr);
           // Whether it is asked for makes no difference.
           linger got{};
           socklen_t length = sizeof(got);
           if (i == 1) SAY(getsockopt(fd, SOL_SOCKET, SO_LINGER, &got, &length));
           side.say_data("linger", &got, sizeof(got));
           side.say_data("received", recv_all(side, fd, 5));
           SAY(send(fd, "bye", 3, 0));
           side.hear();
           SAY(close(fd));
         }
       },
       [](Side& side) {
         const int port = side.hear();
         side.hear();
         for (int i = 0; i < 2; ++i) {
           const int fd = socket(AF_INET, SOCK_STREAM, 0);
           SAY(connect_to(fd, port));
           send_text(side, fd, "hello");
           side.say_data("received", recv_all(side, fd, 3));
           side.tell();
           // The first is asleep when it comes.
           if (i == 1) wait_for(side, fd, POLLHUP);
           char byte = 0;
           SAY(recv(fd, &byte, 1, 0));
           say_poll(side, fd);
           close(fd);
         }
       }},

      {"option.structures",
       [](Side& side) {
         const int fd = side.connected();
         say_time(side, fd, SO_RCVTIMEO);
         const timeval time{3, 500000};
         SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)));
         SAY(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time)));
         say_time(side, fd, SO_RCVTIMEO);
         say_time(side, fd, SO_SNDTIMEO);
         const timeval wrong{0, 1000000};
         SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wrong, sizeof(wrong)));
         const linger wait{1, 7};
         SAY(setsockopt(fd, SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)));
         linger got{};
         socklen_t length = sizeof(got);
         SAY(getsockopt(fd, SOL_SOCKET, SO_LINGER, &got, &length));
         SAY(got.l_onoff);
         SAY(got.l_linger);
         char name[16] = {};
         length = sizeof(name);
         SAY(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
         SAY(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length));
         side.say(name);
         tcp_info info{};
         length = sizeof(info);
         SAY(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
         SAY(info.tcpi_state);
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"option.refused",
       [](Side& side) {
         const int fd = side.connected();
         int value = 1;
         socklen_t length = 1;
         SAY(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, 2));
         SAY(setsockopt(fd, SOL_SOCKET, 9999, &value, sizeof(value)));
         SAY(getsockopt(fd, SOL_SOCKET, 9999, &value, &length));
         SAY(setsockopt(fd, IPPROTO_TCP, 9999, &value, sizeof(value)));
         SAY(setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &value, 1));
         value = 0;
         SAY(setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &value, sizeof(value)));
         value = 100000;
         SAY(setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &value, sizeof(value)));
         SAY(setsockopt(fd, SOL_SOCKET, SO_ERROR, &value, sizeof(value)));
         SAY(setsockopt(fd, SOL_SOCKET, SO_TYPE, &value, sizeof(value)));
         value = -1;
         length = 1;
         SAY(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length));
         SAY(value & 0xff);
         SAY(length);
         SAY(setsockopt(-1, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof(value)));
         SAY(setsockopt(0, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof(value)));
         SAY(getsockopt(0, SOL_SOCKET, SO_ERROR, &value, &length));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"option.deferred_accept",
       [](Side& side) {
         // Apache and others: told of a connection once it has sent something.
         const int listener = socket(AF_INET, SOCK_STREAM, 0);
         const int seconds = 30;
         SAY(setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof(seconds)));
         say_option(side, listener, "TCP_DEFER_ACCEPT", IPPROTO_TCP, TCP_DEFER_ACCEPT);
         SAY(listen(listener, 5));
         say_option(side, listener, "TCP_DEFER_ACCEPT", IPPROTO_TCP, TCP_DEFER_ACCEPT);
         sockaddr_in address{};
         socklen_t length = sizeof(address);
         getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
         side.tell(ntohs(address.sin_port));
         for (int i = 0; i < 2; ++i) {
           wait_for(side, listener, POLLIN);
           const int fd = accept(listener, nullptr, nullptr);
           side.say_data("received", recv_to_end(side, fd));
           send_text(side, fd, "answer");
           SAY(close(fd));
           SAY(setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof(seconds)));
           say_option(side, listener, "TCP_DEFER_ACCEPT", IPPROTO_TCP, TCP_DEFER_ACCEPT);
         }
       },
       [](Side& side) {
         const int port = side.hear();
         for (int i = 0; i < 2; ++i) {
           const int fd = socket(AF_INET, SOCK_STREAM, 0);
           SAY(connect_to(fd, port));
           send_text(side, fd, "hello");
           SAY(shutdown(fd, SHUT_WR));
           side.say_data("answer", recv_to_end(side, fd));
           close(fd);
         }
       }},

      {"option.urgent_in_line",
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int port = side.hear();
         const int fd = socket(AF_INET, SOCK_STREAM, 0);
         const int one = 1;
         SAY(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &one, sizeof(one)));
         SAY(connect_to(fd, port));
         side.tell();
         send_text(side, fd, "hello");
       }},

      {"option.low_water",
       [](Side& side) {
         const int fd = side.connected();
         const int mark = 10;
         SAY(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof(mark)));
         side.tell();
         wait_bytes(side, fd, 4);
         pollfd polled{fd, POLLIN, 0};
         SAY(poll(&polled, 1, 20));
         side.tell();
         wait_for(side, fd, POLLIN);
         char buffer[16];
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         side.tell();
         // Less than the mark, then the end.
         SAY(recv(fd, buffer, sizeof(buffer), 0));
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         send_text(side, fd, "four");
         side.hear();
         send_text(side, fd, "sixsix");
         side.hear();
         send_text(side, fd, "end");
         SAY(close(fd));
       }},
  };
}

}  // namespace posix_cases
