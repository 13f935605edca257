// Orderly ends: shutdown in all its ways and orders.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <string>

#include "case.h"

namespace posix_cases {
namespace {

volatile sig_atomic_t pipe_signals = 0;

void count_pipe_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { pipe_signals = pipe_signals + 1; };
  require(sigaction(SIGPIPE, &action, nullptr) == 0, "sigaction");
}

}  // namespace

Cases shutdown_cases() {
  return {
      {"shutdown.write",
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_to_end(side, fd));
         char buffer[8];
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         SAY(read(fd, buffer, sizeof(buffer)));
         send_text(side, fd, "answer");
         say_poll(side, fd);
         side.hear();
         SAY(close(fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "question");
         SAY(shutdown(fd, SHUT_WR));
         SAY(shutdown(fd, SHUT_WR));
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
         char buffer[8] = {};
         SAY(recv(fd, buffer, 6, MSG_WAITALL));
         side.say_data("received", buffer, 6);
         side.tell();
         SAY(recv(fd, buffer, 6, MSG_WAITALL));
         wait_for(side, fd, POLLHUP);
         say_poll(side, fd);
       }},

      {"shutdown.broken_pipe",
       [](Side& side) {
         const int fd = side.connected();
         count_pipe_signals();
         SAY(shutdown(fd, SHUT_WR));
         SAY(send(fd, "x", 1, 0));
         SAY(pipe_signals);
         SAY(write(fd, "x", 1));
         SAY(pipe_signals);
         iovec part{const_cast<char*>("x"), 1};
         SAY(writev(fd, &part, 1));
         SAY(pipe_signals);
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
         SAY(pipe_signals);
         SAY(send(fd, "", 0, 0));
         SAY(pipe_signals);
         signal(SIGPIPE, SIG_IGN);
         SAY(write(fd, "x", 1));
         side.tell();
         signal(SIGPIPE, SIG_DFL);
         SAY(send(fd, "x", 1, 0));
         side.say("not reached");
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"shutdown.read",
       [](Side& side) {
         const int fd = side.connected();
         char buffer[8];
         SAY(shutdown(fd, SHUT_RD));
         say_poll(side, fd);
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         SAY(recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT));
         SAY(send(fd, "answer", 6, 0));
         side.tell();
         side.hear();
         // Linux still hands out what comes.
         wait_bytes(side, fd, 4);
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         char buffer[8];
         SAY(recv(fd, buffer, 6, MSG_WAITALL));
         SAY(send(fd, "more", 4, 0));
         say_poll(side, fd);
         side.tell();
         side.hear();
       }},

      {"shutdown.both",
       [](Side& side) {
         const int fd = side.connected();
         side.tell();
         wait_bytes(side, fd, 6);
         SAY(shutdown(fd, SHUT_RDWR));
         char buffer[8];
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         send_text(side, fd, "unread");
         char buffer[8];
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         side.hear();
       }},

      {"shutdown.again",
       [](Side& side) {
         // Until the other side has ended too there is something to shut down, and a peer.
         const int fd = side.connected();
         sockaddr_in peer{};
         for (int i = 0; i < 3; ++i) {
           SAY(shutdown(fd, SHUT_RDWR));
           socklen_t length = sizeof(peer);
           SAY(getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length));
         }
         side.tell();
         side.hear();
         // The end may still be on its way.
         for (int i = 0; i < kPatienceMs; ++i) {
           socklen_t length = sizeof(peer);
           if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) break;
           sleep_ms(1);
         }
         for (const int how : {SHUT_RD, SHUT_WR, SHUT_RDWR}) SAY(shutdown(fd, how));
         socklen_t length = sizeof(peer);
         SAY(getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length));
         SAY(getsockname(fd, reinterpret_cast<sockaddr*>(&peer), &length));
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         SAY(close(fd));
         side.tell();
       }},

      {"shutdown.one_after_the_other",
       [](Side& side) {
         const int fd = side.connected();
         char buffer[8];
         SAY(shutdown(fd, SHUT_WR));
         SAY(shutdown(fd, SHUT_RD));
         say_poll(side, fd);
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         side.tell();
         side.hear();
       },
       [](Side& side) {
         const int fd = side.connected();
         char buffer[8];
         side.hear();
         wait_for(side, fd, POLLRDHUP);
         say_poll(side, fd);
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         SAY(shutdown(fd, SHUT_RD));
         say_poll(side, fd);
         SAY(shutdown(fd, SHUT_WR));
         side.tell();
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
         SAY(recv(fd, buffer, sizeof(buffer), 0));
       }},

      {"shutdown.bad",
       [](Side& side) {
         const int fd = side.connected();
         SAY(shutdown(fd, 3));
         SAY(shutdown(fd, -1));
         SAY(shutdown(-1, SHUT_WR));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         SAY(close(fd));
       }},

      {"shutdown.listener",
       [](Side& side) {
         const int listener = side.listen_here();
         SAY(shutdown(listener, SHUT_WR));
         SAY(shutdown(listener, SHUT_RD));
         SAY(accept(listener, nullptr, nullptr));
         say_poll(side, listener);
         SAY(listen(listener, 5));
         SAY(fcntl(listener, F_SETFL, O_NONBLOCK));
         SAY(accept(listener, nullptr, nullptr));
       },
       [](Side& side) { side.hear(); }},

      {"shutdown.end_of_process",
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_all(side, fd, 200000));
         side.tell();
         side.say_data("rest", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         send_all(side, fd, pattern(200000));
         side.hear();  // a device loses what it has not sent yet
         // Neither shutdown nor close, nor any handler of exit.
         _exit(0);
       }},

      {"shutdown.close_keeps_what_was_sent",
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         side.say_data("received", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         send_all(side, fd, pattern(60000));
         SAY(close(fd));
         side.tell();
       }},
  };
}

}  // namespace posix_cases
