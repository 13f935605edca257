// Ends that are not orderly: resets, deaths, and closing what others use.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "case.h"

namespace posix_cases {
namespace {

constexpr linger kReset{1, 0};

// What is left of a connection that the peer reset.
void say_reset(const Side& side, int fd) {
  char buffer[8];
  SAY(recv(fd, buffer, sizeof(buffer), 0));
  SAY(recv(fd, buffer, sizeof(buffer), 0));
  SAY(send(fd, "x", 1, MSG_NOSIGNAL));
  say_poll(side, fd);
  say_socket_error(side, fd);
  SAY(shutdown(fd, SHUT_WR));
  SAY(close(fd));
}

// Until the client, which has told its number, has ended, without a look at the connection.
void await_death(const Side& side) {
  const int process = static_cast<int>(syscall(SYS_pidfd_open, side.hear(), 0));
  require(process >= 0, "pidfd_open");
  side.tell();
  pollfd ended{process, POLLIN, 0};
  require(poll(&ended, 1, -1) == 1, "the end of the other process");
}

void die_when_told(const Side& side) {
  side.tell(getpid());
  side.hear();
  raise(SIGKILL);
}

void connect_and_die(Side& side) {
  const int fd = side.connected();
  SAY(fd >= 0);
  die_when_told(side);
}

void reset(const Side& side, int fd) {
  SAY(setsockopt(fd, SOL_SOCKET, SO_LINGER, &kReset, sizeof(kReset)));
  SAY(close(fd));
}

}  // namespace

Cases fault_cases() {
  return {
      {"fault.reset",
       [](Side& side) {
         const int fd = side.connected();
         side.tell();
         wait_for(side, fd, POLLERR);
         say_poll(side, fd);
         say_reset(side, fd);
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         reset(side, fd);
       }},

      {"fault.reset_while_blocked",
       [](Side& side) {
         const int fd = side.connected();
         side.tell();
         char buffer[8];
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         SAY(recv(fd, buffer, sizeof(buffer), 0));
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         sleep_ms(50);
         reset(side, fd);
       }},

      {"fault.reset_seen_by_send",
       [](Side& side) {
         const int fd = side.connected();
         side.tell();
         wait_for(side, fd, POLLERR);
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
         SAY(recv(fd, nullptr, 0, 0));
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         reset(side, fd);
       }},

      {"fault.reset_seen_by_option",
       [](Side& side) {
         const int fd = side.connected();
         side.tell();
         wait_for(side, fd, POLLERR);
         say_socket_error(side, fd);
         say_socket_error(side, fd);
         char buffer[8];
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         say_poll(side, fd);
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         reset(side, fd);
       }},

      {"fault.reset_after_data",
       [](Side& side) {
         const int fd = side.connected();
         wait_bytes(side, fd, 5);
         side.tell();
         wait_for(side, fd, POLLERR);
         say_reset(side, fd);
       },
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "hello");
         side.hear();
         reset(side, fd);
       }},

      {"fault.closed_with_unread_data",
       [](Side& side) {
         const int fd = side.connected();
         wait_bytes(side, fd, 6);
         SAY(close(fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "unread");
         wait_for(side, fd, POLLERR);
         say_reset(side, fd);
       }},

      {"fault.send_to_closed",
       [](Side& side) {
         const int fd = side.connected();
         SAY(close(fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         char buffer[8];
         wait_for(side, fd, POLLRDHUP);
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         say_poll(side, fd);
         // The first is sent and answered by a reset.
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
         wait_for(side, fd, POLLHUP);
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         say_poll(side, fd);
       }},

      {"fault.killed",
       [](Side& side) {
         const int fd = side.connected();
         wait_bytes(side, fd, 10);
         side.tell();
         side.say_data("received", recv_to_end(side, fd));
         wait_for(side, fd, POLLRDHUP);
         say_poll(side, fd);
       },
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "last words");
         side.hear();  // a device loses what it has not sent yet
         raise(SIGKILL);
       }},

      {"fault.killed_with_unread_data",
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "unread");
         side.tell();
         wait_for(side, fd, POLLERR);
         say_reset(side, fd);
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         wait_bytes(side, fd, 6);
         raise(SIGKILL);
       }},

      {"fault.killed_while_peer_sends",
       [](Side& side) {
         const int fd = side.connected();
         const Bytes data = pattern(1 << 16);
         signal(SIGPIPE, SIG_IGN);
         side.tell();
         ssize_t sent = 0;
         while (sent >= 0) sent = send(fd, data.data(), data.size(), 0);
         // Which of the two depends on how much was under way.
         const bool either = errno == ECONNRESET || errno == EPIPE;
         SAY(either);
         SAY(send(fd, "x", 1, 0));
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         recv_all(side, fd, 1 << 20);
         raise(SIGKILL);
       }},

      {"fault.killed_then_asked_once",
       [](Side& side) {
         // As a pool of connections looks whether one still lives.
         const int fd = side.connected();
         char byte = 0;
         SAY(recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT));
         await_death(side);
         SAY(recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT));
         SAY(recv(fd, &byte, 1, MSG_DONTWAIT));
         say_socket_error(side, fd);
       },
       connect_and_die},

      {"fault.killed_while_peer_only_asks",
       [](Side& side) {
         // Neither sleeps nor polls.
         const int fd = side.connected();
         set_blocking(fd, false);
         side.hear();
         side.tell();
         char byte = 0;
         ssize_t got = -1;
         for (int looks = 0; looks < kPatienceMs && got == -1; ++looks) {
           got = recv(fd, &byte, 1, 0);
           if (got == -1 && errno != EAGAIN) break;
           sleep_ms(1);
         }
         SAY(got);
       },
       connect_and_die},

      {"fault.killed_then_sent_to",
       [](Side& side) {
         // A beat of the heart now and then, and no look at what comes.
         const int fd = side.connected();
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
         await_death(side);
         sleep_ms(20);
         SAY(send(fd, "x", 1, MSG_NOSIGNAL) == 1 || errno == ECONNRESET || errno == EPIPE);
         SAY(until_failure([&] {
           sleep_ms(20);
           return static_cast<long>(send(fd, "x", 1, MSG_NOSIGNAL));
         }));
       },
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_all(side, fd, 1));
         die_when_told(side);
       }},

      // The reset comes after the end: a call that receives gives the end, and leaves the error.
      {"fault.killed_then_reset",
       [](Side& side) {
         const int fd = side.connected();
         char buffer[8];
         await_death(side);
         wait_for(side, fd, POLLRDHUP);
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
         wait_for(side, fd, POLLERR);
         say_poll(side, fd);
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         say_socket_error(side, fd);
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
         SAY(recv(fd, buffer, sizeof(buffer), 0));
       },
       [](Side& side) {
         side.connected();
         die_when_told(side);
       }},

      {"fault.killed_with_unread_data_seen_by_option",
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "unread");
         await_death(side);
         say_socket_error(side, fd);
         say_socket_error(side, fd);
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
       },
       [](Side& side) {
         const int fd = side.connected();
         wait_bytes(side, fd, 6);
         die_when_told(side);
       }},

      {"fault.killed_with_unread_data_then_shut_down",
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "unread");
         await_death(side);
         SAY(shutdown(fd, SHUT_WR));
         say_poll(side, fd);
         say_reset(side, fd);
       },
       [](Side& side) {
         const int fd = side.connected();
         wait_bytes(side, fd, 6);
         die_when_told(side);
       }},

      {"fault.killed_with_unread_data_then_asked_its_name",
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "unread");
         await_death(side);
         sockaddr_in peer{};
         socklen_t length = sizeof(peer);
         SAY(getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length));
         say_reset(side, fd);
       },
       [](Side& side) {
         const int fd = side.connected();
         wait_bytes(side, fd, 6);
         die_when_told(side);
       }},

      {"fault.killed_after_its_end",
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "unread");
         wait_for(side, fd, POLLRDHUP);
         await_death(side);
         wait_for(side, fd, POLLERR);
         say_reset(side, fd);
       },
       [](Side& side) {
         const int fd = side.connected();
         wait_bytes(side, fd, 6);
         SAY(shutdown(fd, SHUT_WR));
         die_when_told(side);
       }},

      {"fault.double_close",
       [](Side& side) {
         const int fd = side.connected();
         SAY(close(fd));
         SAY(close(fd));
         char buffer[8];
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         SAY(send(fd, "x", 1, 0));
         SAY(shutdown(fd, SHUT_WR));
         SAY(fcntl(fd, F_GETFL));
         say_poll(side, fd);
         SAY(close(-1));
       },
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"fault.number_used_again",
       [](Side& side) {
         // A file that takes a connection's number is a file.
         const int fd = side.connected();
         SAY(close(fd));
         int ends[2];
         require(pipe(ends) == 0, "pipe");
         SAY(ends[0] == fd || ends[1] == fd);
         SAY(write(ends[1], "pipe", 4));
         char buffer[8] = {};
         SAY(read(ends[0], buffer, sizeof(buffer)));
         side.say_data("received", buffer, 4);
         SAY(recv(ends[0], buffer, sizeof(buffer), 0));
       },
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("rest", recv_to_end(side, fd));
       }},
  };
}

}  // namespace posix_cases
