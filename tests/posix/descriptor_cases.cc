// Copies of descriptors, their flags and numbers, and giving them to others.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "case.h"

namespace posix_cases {
namespace {

// Answers each text with itself until the end.
void echo(const Side& side, int fd) {
  Bytes buffer(1 << 16);
  ssize_t got = 0;
  while ((got = recv(fd, buffer.data(), buffer.size(), 0)) > 0) {
    buffer.resize(static_cast<std::size_t>(got));
    send_all(side, fd, buffer);
    buffer.resize(1 << 16);
  }
  side.say_result("echo: recv", got);
}

void echo_one(Side& side) {
  const int fd = side.connected();
  echo(side, fd);
}

// Whether a text goes to the peer's echo() and back.
void say_echo(const Side& side, int fd) {
  send_text(side, fd, "there and back");
  side.say_data("echoed", recv_all(side, fd, 14));
}

long send_descriptor(int through, int fd) {
  char byte = 'd';
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  return sendmsg(through, &message, 0);
}

int receive_descriptor(const Side& side, int through) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  SAY(recvmsg(through, &message, 0));
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  require(header != nullptr && header->cmsg_type == SCM_RIGHTS, "SCM_RIGHTS");
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  return fd;
}

}  // namespace

Cases descriptor_cases() {
  return {
      {"descriptor.dup", echo_one,
       [](Side& side) {
         const int fd = side.connected();
         const int copy = dup(fd);
         say_echo(side, copy);
         SAY(close(fd));
         say_echo(side, copy);
         const int second = fcntl(copy, F_DUPFD, 300);
         SAY(second);
         const int third = fcntl(copy, F_DUPFD_CLOEXEC, 300);
         SAY(third);
         SAY(fcntl(third, F_GETFD));
         SAY(close(copy));
         say_echo(side, second);
         SAY(close(third));
         say_echo(side, second);
         SAY(close(second));
       }},

      {"descriptor.dup2", echo_one,
       [](Side& side) {
         const int fd = side.connected();
         SAY(dup2(fd, 300));
         SAY(dup2(fd, fd) == fd);
         SAY(dup2(fd, -1));
         SAY(dup2(299, 300));
         SAY(dup3(fd, 301, O_CLOEXEC));
         SAY(fcntl(301, F_GETFD));
         SAY(dup3(fd, fd, 0));
         say_echo(side, 300);
         say_echo(side, 301);
         SAY(close(fd));
         SAY(close(300));
         say_echo(side, 301);
         // As inetd and ssh do it.
         SAY(dup2(301, 0));
         SAY(close(301));
         send_text(side, 0, "by number 0");
         char buffer[16];
         side.say_data("echoed", recv_all(side, 0, 11));
         SAY(write(0, "again", 5));
         SAY(shutdown(0, SHUT_WR));
         wait_bytes(side, 0, 5);
         SAY(read(0, buffer, sizeof(buffer)));
       }},

      {"descriptor.refused", echo_one,
       [](Side& side) {
         // What is refused leaves the connection as it was.
         const int fd = side.connected();
         SAY(dup3(0, fd, 0x77));
         SAY(dup3(fd, 0, 0x77));
         SAY(dup2(499, fd));
         SAY(close_range(static_cast<unsigned>(fd), static_cast<unsigned>(fd), 0x70));
         say_echo(side, fd);
       }},

      {"descriptor.dup2_over_connection",
       [](Side& side) {
         const int listener = side.listen_here();
         const int first = accept(listener, nullptr, nullptr);
         const int second = accept(listener, nullptr, nullptr);
         side.say_data("first", recv_to_end(side, first));
         side.tell();
         side.say_data("second", recv_to_end(side, second));
       },
       [](Side& side) {
         const int port = side.hear();
         const int first = socket(AF_INET, SOCK_STREAM, 0);
         SAY(connect_to(first, port));
         const int second = socket(AF_INET, SOCK_STREAM, 0);
         SAY(connect_to(second, port));
         send_text(side, first, "one");
         SAY(dup2(second, first) == first);
         side.hear();
         send_text(side, first, "two");
         SAY(close(second));
         send_text(side, first, "three");
       }},

      {"descriptor.shared_state",
       [](Side& side) {
         const int fd = side.connected();
         const int copy = dup(fd);
         // O_NONBLOCK belongs to what both name, FD_CLOEXEC to each.
         SAY(fcntl(copy, F_SETFL, O_NONBLOCK));
         char buffer[8];
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         SAY(fcntl(copy, F_SETFD, FD_CLOEXEC));
         SAY(fcntl(fd, F_GETFD));
         SAY(shutdown(copy, SHUT_WR));
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"descriptor.lowest_number", echo_one,
       [](Side& side) {
         const int port = side.hear();
         SAY(close(0));
         SAY(socket(AF_INET, SOCK_STREAM, 0));
         SAY(connect_to(0, port));
         side.tell();
         say_echo(side, 0);
         const int copy = dup(0);
         SAY(close(0));
         SAY(dup(copy));
         say_echo(side, 0);
       }},

      {"descriptor.passed",
       [](Side& side) {
         const int fd = side.connected();
         int pair[2];
         require(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
         if (fork() == 0) {
           close(fd);
           close(pair[0]);
           echo(side, receive_descriptor(side, pair[1]));
           _exit(0);
         }
         require(send_descriptor(pair[0], fd) == 1, "sendmsg");
         close(fd);
         int status = -1;
         wait(&status);
         SAY(status);
       },
       [](Side& side) {
         const int fd = side.connected();
         say_echo(side, fd);
         send_all(side, fd, pattern(50000));
         side.say_data("echoed", recv_all(side, fd, 50000));
       }},

      {"descriptor.passed_to_itself", echo_one,
       [](Side& side) {
         int fd = side.connected();
         int pair[2];
         require(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
         SAY(send_descriptor(pair[0], fd));
         SAY(close(fd));
         fd = receive_descriptor(side, pair[1]);
         say_echo(side, fd);
       }},

      {"descriptor.passed_in_several_messages", echo_one,
       [](Side& side) {
         const int fd = side.connected();
         int pair[2];
         require(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0, "socketpair");
         for (int i = 0; i < 3; ++i) require(send_descriptor(pair[0], fd) == 1, "sendmsg");
         SAY(close(fd));
         char bytes[4] = {};
         iovec parts[4];
         alignas(cmsghdr) char control[4][CMSG_SPACE(sizeof(int))] = {};
         mmsghdr messages[4] = {};
         for (int i = 0; i < 4; ++i) {
           parts[i] = {&bytes[i], 1};
           messages[i].msg_hdr.msg_iov = &parts[i];
           messages[i].msg_hdr.msg_iovlen = 1;
           messages[i].msg_hdr.msg_control = control[i];
           messages[i].msg_hdr.msg_controllen = sizeof(control[i]);
         }
         SAY(recvmmsg(pair[1], messages, 4, MSG_WAITFORONE, nullptr));
         int copy = -1;
         for (int i = 0; i < 3; ++i) {
           side.say("control " + std::to_string(messages[i].msg_hdr.msg_controllen));
           const cmsghdr* header = CMSG_FIRSTHDR(&messages[i].msg_hdr);
           require(header != nullptr && header->cmsg_type == SCM_RIGHTS, "SCM_RIGHTS");
           if (copy >= 0) close(copy);
           std::memcpy(&copy, CMSG_DATA(header), sizeof(copy));
         }
         say_echo(side, copy);
       }},

      {"descriptor.listener_passed",
       [](Side& side) {
         // A server that hands its listening socket to another, as on an update without a gap.
         int pair[2];
         require(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
         const pid_t child = fork();
         if (child == 0) {
           const int listener = receive_descriptor(side, pair[1]);
           for (int i = 0; i < 3; ++i) {
             const int fd = accept(listener, nullptr, nullptr);
             echo(side, fd);
             close(fd);
           }
           _exit(0);
         }
         const int listener = side.listen_here();
         require(send_descriptor(pair[0], listener) == 1, "sendmsg");
         close(listener);
         int status = -1;
         waitpid(child, &status, 0);
         SAY(status);
       },
       [](Side& side) {
         const int port = side.hear();
         for (int i = 0; i < 3; ++i) {
           const int fd = socket(AF_INET, SOCK_STREAM, 0);
           SAY(connect_to(fd, port));
           say_echo(side, fd);
           SAY(shutdown(fd, SHUT_WR));
           side.say_data("rest", recv_to_end(side, fd));
           close(fd);
         }
       }},

      {"descriptor.close_range", echo_one,
       [](Side& side) {
         const int fd = side.connected();
         SAY(dup2(fd, 300));
         SAY(close(fd));
         SAY(close_range(290, 299, 0));
         say_echo(side, 300);
         SAY(close_range(290, 310, CLOSE_RANGE_CLOEXEC));
         SAY(fcntl(300, F_GETFD));
         say_echo(side, 300);
         SAY(close_range(300, 300, 0));
         SAY(send(300, "x", 1, 0));
         SAY(close_range(5, 4, 0));
       }},

      {"descriptor.close_from", echo_one,
       [](Side& side) {
         const int fd = side.connected();
         SAY(dup2(fd, 720));
         SAY(close(fd));
         closefrom(721);
         say_echo(side, 720);
         closefrom(720);
         SAY(send(720, "x", 1, 0));
       }},

      {"descriptor.close_strangers_first", echo_one,
       [](Side& side) {
         // Closes everything, as daemons do, whatever opened it.
         for (int fd = 3; fd < 1024; ++fd) {
           if (fd != kTranscript && fd != kTell && fd != kHear) close(fd);
         }
         const int fd = side.connected();
         say_echo(side, fd);
       }},

      {"descriptor.close_strangers_connected",
       [](Side& side) {
         const int fd = side.connected();
         side.tell();
         echo(side, fd);
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         say_echo(side, fd);
         for (int other = 3; other < 1024; ++other) {
           if (other != kTranscript && other != kTell && other != kHear && other != fd)
             close(other);
         }
         say_echo(side, fd);
         send_all(side, fd, pattern(100000));
         side.say_data("echoed", recv_all(side, fd, 100000));
       }},
  };
}

}  // namespace posix_cases
