// Every call on connections, made by syscall(), as libuv, Go's syscall package and others make
// some.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

#include "case.h"
#include "exec.h"

namespace posix_cases {
namespace {

// What the kernel takes for a set of signals.
constexpr std::size_t kSignalBytes = _NSIG / 8;

long wait_by_syscall(int set, epoll_event* event, int milliseconds) {
  return syscall(SYS_epoll_pwait, set, event, 1, milliseconds, nullptr, kSignalBytes);
}

msghdr message_of(iovec* parts, std::size_t count) {
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  return message;
}

void send_every_way(const Side& side, int fd) {
  iovec parts[] = {{const_cast<char*>("two "), 4}, {const_cast<char*>("parts "), 6}};
  msghdr message = message_of(parts, 2);
  mmsghdr messages[2] = {{message, 0}, {message, 0}};
  SAY(syscall(SYS_write, fd, "write ", 6));
  SAY(syscall(SYS_writev, fd, parts, 2));
  SAY(syscall(SYS_sendto, fd, "sendto ", 7, 0, nullptr, 0));
  SAY(syscall(SYS_sendto, fd, "more ", 5, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0));
  SAY(syscall(SYS_sendmsg, fd, &message, 0));
  SAY(syscall(SYS_sendmmsg, fd, messages, 2, 0));
  SAY(messages[1].msg_len);
  SAY(syscall(SYS_pwritev2, fd, parts, 2, -1L, -1L, 0));
  const int file = open("/tmp", O_RDWR | O_TMPFILE, 0600);
  require(write(file, "of a file ", 10) == 10, "write");
  off_t offset = 0;
  SAY(syscall(SYS_sendfile, fd, file, &offset, 10L));
  int ends[2];
  require(pipe(ends) == 0 && write(ends[1], "of a pipe ", 10) == 10, "pipe");
  SAY(syscall(SYS_splice, ends[0], nullptr, fd, nullptr, 10L, 0));
  for (const int other : {file, ends[0], ends[1]}) close(other);
}

// As many bytes as send_every_way sends, then ten for a pipe.
void receive_every_way(const Side& side, int fd) {
  char buffer[32] = {};
  iovec parts[] = {{buffer, 4}, {buffer + 4, 6}};
  msghdr message = message_of(parts, 2);
  mmsghdr messages[2] = {{message, 0}, {message, 0}};
  wait_bytes(side, fd, 88);
  const auto say = [&](std::size_t bytes) {
    side.say_data("received", buffer, bytes);
    std::memset(buffer, 0, sizeof(buffer));
  };
  SAY(syscall(SYS_recvfrom, fd, buffer, 6, MSG_PEEK, nullptr, nullptr));
  say(6);
  SAY(syscall(SYS_read, fd, buffer, 6));
  say(6);
  SAY(syscall(SYS_readv, fd, parts, 2));
  say(10);
  SAY(syscall(SYS_recvfrom, fd, buffer, 12, MSG_WAITALL, nullptr, nullptr));
  say(12);
  SAY(syscall(SYS_recvmsg, fd, &message, 0));
  say(10);
  SAY(syscall(SYS_recvmmsg, fd, messages, 2, 0, nullptr));
  SAY(messages[1].msg_len);
  say(10);
  SAY(syscall(SYS_preadv2, fd, parts, 2, -1L, -1L, 0));
  say(10);
  int ends[2];
  require(pipe(ends) == 0, "pipe");
  SAY(syscall(SYS_splice, fd, nullptr, ends[1], nullptr, 10L, 0));
  require(read(ends[0], buffer, 10) == 10, "read");
  say(10);
  SAY(syscall(SYS_recvfrom, fd, buffer, 10, MSG_WAITALL, nullptr, nullptr));
  say(10);
  SAY(syscall(SYS_recvfrom, fd, buffer, 10, MSG_DONTWAIT, nullptr, nullptr));
  for (const int end : ends) close(end);
}

void exchange(Side& side) {
  const int fd = side.connected();
  send_every_way(side, fd);
  receive_every_way(side, fd);
  // Both have received all before one ends.
  side.tell();
  side.hear();
  SAY(syscall(SYS_shutdown, fd, SHUT_WR));
  side.say_data("rest", recv_to_end(side, fd));
  SAY(syscall(SYS_close, fd));
  SAY(syscall(SYS_close, fd));
  char byte = 0;
  SAY(syscall(SYS_read, fd, &byte, 1));
  SAY(syscall(SYS_sendto, fd, "x", 1, 0, nullptr, 0));
}

void say_option(const Side& side, int fd, int level, int option) {
  int value = -1;
  socklen_t length = sizeof(value);
  SAY(syscall(SYS_getsockopt, fd, level, option, &value, &length));
  SAY(value);
}

int port_of(int fd, long call) {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  require(syscall(call, fd, &address, &length) == 0, "an address");
  return ntohs(address.sin_port);
}

// Serves `count` clients by nothing but system calls.
void serve(Side& side) {
  const long listener = syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  SAY(syscall(SYS_setsockopt, listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
  const sockaddr_in address = meeting_place(0);
  SAY(syscall(SYS_bind, listener, &address, sizeof(address)));
  SAY(syscall(SYS_listen, listener, 8));
  say_option(side, static_cast<int>(listener), SOL_SOCKET, SO_ACCEPTCONN);
  side.tell(port_of(static_cast<int>(listener), SYS_getsockname));
  for (int i = 0; i < 4; ++i) {
    sockaddr_in peer{};
    socklen_t length = sizeof(peer);
    const long accepted = i % 2 == 0 ? syscall(SYS_accept, listener, &peer, &length)
                                     : syscall(SYS_accept4, listener, &peer, &length, SOCK_CLOEXEC);
    const int fd = static_cast<int>(accepted);
    SAY(fd >= 0);
    SAY(ntohs(peer.sin_port) == port_of(fd, SYS_getpeername));
    SAY(syscall(SYS_fcntl, fd, F_GETFD, 0));
    char buffer[8] = {};
    SAY(syscall(SYS_recvfrom, fd, buffer, 5, MSG_WAITALL, nullptr, nullptr));
    side.say_data("received", buffer, 5);
    SAY(syscall(SYS_write, fd, "welcome", 7));
    side.say_data("rest", recv_to_end(side, fd));
    SAY(syscall(SYS_close, fd));
  }
  SAY(syscall(SYS_fcntl, listener, F_SETFL, O_NONBLOCK));
  SAY(syscall(SYS_accept4, listener, nullptr, nullptr, 0));
  SAY(syscall(SYS_close, listener));
  SAY(syscall(SYS_accept4, listener, nullptr, nullptr, 0));
}

void be_served(Side& side) {
  const sockaddr_in address = meeting_place(side.hear());
  for (int i = 0; i < 4; ++i) {
    const bool waits = i < 2;
    const int fd = static_cast<int>(
        syscall(SYS_socket, AF_INET, SOCK_STREAM | (waits ? 0 : SOCK_NONBLOCK), 0));
    SAY(syscall(SYS_connect, fd, &address, sizeof(address)));
    pollfd polled{fd, POLLOUT, 0};
    const timespec patience{kPatienceMs / 1000, 0};
    SAY(syscall(SYS_ppoll, &polled, 1, &patience, nullptr, kSignalBytes));
    side.say(poll_names(polled.revents));
    say_option(side, fd, SOL_SOCKET, SO_ERROR);
    SAY(port_of(fd, SYS_getpeername) == ntohs(address.sin_port));
    SAY(syscall(SYS_fcntl, fd, F_SETFL, 0));
    SAY(syscall(SYS_sendto, fd, "hello", 5, 0, nullptr, 0));
    char buffer[8] = {};
    SAY(syscall(SYS_recvfrom, fd, buffer, 7, MSG_WAITALL, nullptr, nullptr));
    side.say_data("received", buffer, 7);
    SAY(syscall(SYS_close, fd));
  }
}

// Sends a byte whenever told, until told 0.
void send_when_told(Side& side) {
  const int fd = side.connected();
  while (side.hear() != 0) send_text(side, fd, "x");
}

void say_all_waits(const Side& side, int fd, int set) {
  pollfd polled{fd, POLLIN, 0};
#ifdef SYS_poll
  SAY(syscall(SYS_poll, &polled, 1, 20));
#endif
  timespec time{0, 20'000'000};
  SAY(syscall(SYS_ppoll, &polled, 1, &time, nullptr, kSignalBytes));
  side.say(poll_names(polled.revents));
  fd_set readable;
#ifdef SYS_select
  timeval soon{0, 20'000};
  FD_ZERO(&readable);
  FD_SET(fd, &readable);
  SAY(syscall(SYS_select, fd + 1, &readable, nullptr, nullptr, &soon));
#endif
  time = {0, 20'000'000};
  FD_ZERO(&readable);
  FD_SET(fd, &readable);
  SAY(syscall(SYS_pselect6, fd + 1, &readable, nullptr, nullptr, &time, nullptr));
  epoll_event event{};
#ifdef SYS_epoll_wait
  SAY(syscall(SYS_epoll_wait, set, &event, 1, 20));
#endif
  SAY(wait_by_syscall(set, &event, 20));
  event = {};
  time = {0, 20'000'000};
  SAY(syscall(SYS_epoll_pwait2, set, &event, 1, &time, nullptr, kSignalBytes));
  if (event.events == 0) return;
  side.say(epoll_names(event.events));
  SAY(event.data.u64);
}

void say_end(const Side& side, long child) {
  int status = -1;
  require(waitpid(static_cast<pid_t>(child), &status, 0) == child, "waitpid");
  SAY(status);
}

// In a child made by `fork`: answers with what comes, until the end.
void serve_in_child(Side& side, const std::function<long()>& fork) {
  const int fd = side.connected();
  send_all(side, fd, recv_all(side, fd, 100));
  const long child = fork();
  require(child >= 0, "fork");
  if (child == 0) {
    char buffer[4096];
    long got = 0;
    while ((got = syscall(SYS_read, fd, buffer, sizeof(buffer))) > 0)
      send_all(side, fd, Bytes(buffer, buffer + got));
    syscall(SYS_exit_group, static_cast<int>(got));
  }
  SAY(syscall(SYS_close, fd));
  say_end(side, child);
}

void use_echo(Side& side) {
  const int fd = side.connected();
  for (const unsigned seed : {1U, 2U, 3U}) {
    send_all(side, fd, pattern(100, seed));
    side.say_data("echoed", recv_all(side, fd, 100));
  }
  SAY(shutdown(fd, SHUT_WR));
  side.say_data("rest", recv_to_end(side, fd));
}

}  // namespace

Cases syscall_cases() {
  return {
      {"syscall.bytes", exchange, exchange},

      {"syscall.serve", serve, be_served},

      {"syscall.waits",
       [](Side& side) {
         const int fd = side.connected();
         const int set = static_cast<int>(syscall(SYS_epoll_create1, EPOLL_CLOEXEC));
         epoll_event event{};
         event.events = EPOLLIN;
         event.data.u64 = 77;
         SAY(syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, fd, &event));
         SAY(syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, fd, &event));
         say_all_waits(side, fd, set);
         side.tell(1);
         wait_bytes(side, fd, 1);
         say_all_waits(side, fd, set);
         event.events = EPOLLIN | EPOLLOUT;
         event.data.u64 = 78;
         SAY(syscall(SYS_epoll_ctl, set, EPOLL_CTL_MOD, fd, &event));
         say_all_waits(side, fd, set);
         recv_all(side, fd, 1);
         say_all_waits(side, fd, set);
         // And a wait that sleeps until something comes.
         event.events = EPOLLIN;
         SAY(syscall(SYS_epoll_ctl, set, EPOLL_CTL_MOD, fd, &event));
         side.tell(1);
         SAY(wait_by_syscall(set, &event, kPatienceMs));
         SAY(syscall(SYS_epoll_ctl, set, EPOLL_CTL_DEL, fd, nullptr));
         SAY(wait_by_syscall(set, &event, 20));
         SAY(syscall(SYS_close, set));
         SAY(wait_by_syscall(set, &event, 20));
         side.tell(0);
       },
       send_when_told},

      {"syscall.descriptors",
       [](Side& side) {
         const int fd = side.connected();
         const int copy = static_cast<int>(syscall(SYS_dup, fd));
         SAY(syscall(SYS_write, copy, "by dup, ", 8));
         SAY(syscall(SYS_dup3, fd, 300, O_CLOEXEC));
         SAY(syscall(SYS_fcntl, 300, F_GETFD, 0));
         SAY(write(300, "by dup3, ", 9));
#ifdef SYS_dup2
         SAY(syscall(SYS_dup2, fd, 301));
#else
         SAY(syscall(SYS_dup3, fd, 301, 0));
#endif
         SAY(write(301, "by dup2, ", 9));
         SAY(syscall(SYS_fcntl, fd, F_DUPFD, 310));
         SAY(write(310, "by F_DUPFD, ", 12));
         SAY(syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 320));
         SAY(write(320, "and F_DUPFD_CLOEXEC", 19));
         SAY(syscall(SYS_close, fd));
         SAY(syscall(SYS_close_range, 300, 310, 0));
         SAY(write(310, "x", 1));
         SAY(syscall(SYS_fcntl, copy, F_SETFL, O_NONBLOCK));
         SAY(syscall(SYS_fcntl, 320, F_GETFL, 0));
         char byte = 0;
         SAY(read(copy, &byte, 1));
         int value = 0;
         SAY(syscall(SYS_ioctl, 320, FIONBIO, &value));
         SAY(syscall(SYS_fcntl, copy, F_GETFL, 0));
         side.tell(1);
         wait_bytes(side, copy, 1);
         SAY(syscall(SYS_ioctl, copy, FIONREAD, &value));
         SAY(value);
         SAY(read(320, &byte, 1));
         SAY(syscall(SYS_close, copy));
         SAY(write(320, ", still open", 12));
         side.tell(0);
         SAY(syscall(SYS_close, 320));
       },
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_all(side, fd, 57));
         side.hear();
         send_text(side, fd, "x");
         side.hear();
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"syscall.options",
       [](Side& side) {
         const int fd = side.connected();
         int value = 1;
         SAY(syscall(SYS_setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof(value)));
         say_option(side, fd, IPPROTO_TCP, TCP_NODELAY);
         say_option(side, fd, SOL_SOCKET, SO_TYPE);
         say_option(side, fd, SOL_SOCKET, SO_ERROR);
         const timeval time{0, 30'000};
         SAY(syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)));
         char byte = 0;
         SAY(syscall(SYS_read, fd, &byte, 1));
         SAY(recv(fd, &byte, 1, 0));
         const linger reset{1, 0};
         SAY(syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)));
         side.tell();
         SAY(syscall(SYS_close, fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         char byte = 0;
         SAY(recv(fd, &byte, 1, 0));
       }},

      {"syscall.clone",
       [](Side& side) {
         serve_in_child(side, [] { return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); });
       },
       use_echo},

#ifdef SYS_fork
      {"syscall.fork", [](Side& side) { serve_in_child(side, [] { return syscall(SYS_fork); }); },
       use_echo},
#endif

      {"syscall.execve",
       [](Side& side) {
         const int fd = side.connected();
         std::string words[] = {"posix_cases", kExecuted, std::to_string(fd)};
         char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
         syscall(SYS_execve, "/proc/self/exe", arguments, environ);
         side.say("not reached");
       },
       use_echo},

      {"syscall.execveat",
       [](Side& side) {
         const int fd = side.connected();
         std::string words[] = {"posix_cases", kExecuted, std::to_string(fd)};
         char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
         syscall(SYS_execveat, AT_FDCWD, "/proc/self/exe", arguments, environ, 0);
         side.say("not reached");
       },
       use_echo},
  };
}

}  // namespace posix_cases
