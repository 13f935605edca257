// Meeting: connect, listen and accept in every order, and what they refuse.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "case.h"

namespace posix_cases {
namespace {

long bind_to(int fd, int port) {
  const sockaddr_in address = meeting_place(port);
  return ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

int port_of(int fd) {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  require(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0, "getsockname");
  return ntohs(address.sin_port);
}

// A connection that the kernel completes by itself, later, because the first attempt finds the
// queue full; accept_late() is the other side.
int begin_to_connect(const Side& side) {
  const int port = side.hear();
  const int filler = socket(AF_INET, SOCK_STREAM, 0);
  require(connect_to(filler, port) == 0, "connect");
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  SAY(connect_to(fd, port));
  side.tell();
  return fd;
}

// Accepted while the program that connects is elsewhere.
int accept_late(const Side& side) {
  const int listener = side.listen_here(0);
  side.hear();
  close(accept(listener, nullptr, nullptr));
  SAY(listen(listener, 16));
  const int fd = accept(listener, nullptr, nullptr);
  require(fd >= 0, "accept");
  close(listener);
  return fd;
}

void connect_late(Side& side) {
  const int fd = begin_to_connect(side);
  side.hear();
  sleep_ms(50);
  wait_for(side, fd, POLLOUT);
  set_blocking(fd, true);
  send_text(side, fd, "hello");
  side.say_data("received", recv_all(side, fd, 7));
  send_text(side, fd, "bye");
}

}  // namespace

Cases connect_cases() {
  return {
      {"connect.before_accept",
       [](Side& side) {
         const int listener = side.listen_here();
         side.hear();
         // The client has sent and gone long before.
         const int fd = accept(listener, nullptr, nullptr);
         side.say_data("received", recv_to_end(side, fd));
         const int second = accept(listener, nullptr, nullptr);
         side.say_data("received", recv_to_end(side, second));
       },
       [](Side& side) {
         const int port = side.hear();
         int fd = socket(AF_INET, SOCK_STREAM, 0);
         SAY(connect_to(fd, port));
         send_all(side, fd, pattern(1000));
         SAY(close(fd));
         fd = socket(AF_INET, SOCK_STREAM, 0);
         SAY(connect_to(fd, port));
         side.tell();
         send_all(side, fd, pattern(1000, 2));
       }},

      {"connect.reset_before_accept",
       [](Side& side) {
         const int listener = side.listen_here();
         side.hear();
         const int fd = accept(listener, nullptr, nullptr);
         SAY(fd >= 0);
         wait_for(side, fd, POLLERR);
         char buffer[8];
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         SAY(recv(fd, buffer, sizeof(buffer), 0));
       },
       [](Side& side) {
         const int port = side.hear();
         const int fd = socket(AF_INET, SOCK_STREAM, 0);
         SAY(connect_to(fd, port));
         const linger reset{1, 0};
         SAY(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)));
         SAY(close(fd));
         side.tell();
       }},

      {"connect.one_thread",
       [](Side& side) {
         // One thread is both ends, and accepts after it has connected.
         const int listener = side.listen_here();
         const int near = socket(AF_INET, SOCK_STREAM, 0);
         SAY(connect_to(near, port_of(listener)));
         SAY(send(near, "early", 5, 0));
         const int far = accept(listener, nullptr, nullptr);
         side.say_data("received", recv_all(side, far, 5));
         SAY(send(far, "answer", 6, 0));
         side.say_data("received", recv_all(side, near, 6));
         send_all(side, near, pattern(100000));
         side.say_data("received", recv_all(side, far, 100000));
         SAY(close(near));
         side.say_data("rest", recv_to_end(side, far));
       },
       [](Side& side) { side.hear(); }},

      {"connect.to_itself",
       [](Side& side) {
         // Without a listener: both ends are one socket.
         const int fd = socket(AF_INET, SOCK_STREAM, 0);
         SAY(bind_to(fd, 0));
         SAY(connect_to(fd, port_of(fd)));
         SAY(send(fd, "hello", 5, 0));
         side.say_data("received", recv_all(side, fd, 5));
         SAY(shutdown(fd, SHUT_WR));
         side.say_data("rest", recv_to_end(side, fd));
       },
       [](Side&) {}},

      {"connect.refused",
       [](Side& side) {
         const int listener = side.listen_here();
         SAY(close(listener));
         side.tell();
       },
       [](Side& side) {
         const int port = side.hear();
         side.hear();
         const int fd = socket(AF_INET, SOCK_STREAM, 0);
         SAY(connect_to(fd, port));
         char buffer[8];
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
         int error = -1;
         socklen_t length = sizeof(error);
         SAY(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
         SAY(error);
         pollfd polled{fd, POLLIN | POLLOUT, 0};
         SAY(poll(&polled, 1, 0));
         side.say(poll_names(polled.revents));
         SAY(connect_to(fd, port));
       }},

      {"connect.again_on_the_same_socket",
       [](Side& side) {
         // Piranha: refused at first, tried again with the same descriptor.
         const int reserved = side.listen_here();
         const int port = port_of(reserved);
         SAY(close(reserved));
         side.tell();
         side.hear();
         const int one = 1;
         const int listener = socket(AF_INET, SOCK_STREAM, 0);
         SAY(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
         SAY(bind_to(listener, port));
         SAY(listen(listener, 5));
         side.tell();
         const int fd = accept(listener, nullptr, nullptr);
         side.say_data("received", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int port = side.hear();
         side.hear();
         const int fd = socket(AF_INET, SOCK_STREAM, 0);
         for (int i = 0; i < 5; ++i) SAY(connect_to(fd, port));
         side.tell();
         side.hear();
         SAY(connect_to(fd, port));
         send_text(side, fd, "hello");
       }},

      {"connect.listen_again",
       [](Side& side) {
         // A server that restarts on its port, with the last connection not gone yet.
         int port = 0;
         const int one = 1;
         for (int i = 0; i < 3; ++i) {
           const int listener = socket(AF_INET, SOCK_STREAM, 0);
           SAY(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
           SAY(bind_to(listener, port));
           SAY(listen(listener, 5));
           port = port_of(listener);
           side.tell(port);
           const int fd = accept(listener, nullptr, nullptr);
           SAY(close(listener));
           side.say_data("received", recv_all(side, fd, 5));
           SAY(close(fd));
         }
       },
       [](Side& side) {
         for (int i = 0; i < 3; ++i) {
           const int fd = socket(AF_INET, SOCK_STREAM, 0);
           SAY(connect_to(fd, side.hear()));
           send_text(side, fd, "hello");
           side.say_data("rest", recv_to_end(side, fd));
           SAY(close(fd));
         }
       }},

      {"connect.refuses",
       [](Side& side) {
         const int listener = side.listen_here();
         const int fd = accept(listener, nullptr, nullptr);
         const int port = port_of(listener);
         SAY(connect_to(fd, port));
         SAY(connect_to(listener, port));
         SAY(bind_to(fd, 0));
         SAY(bind_to(listener, 0));
         SAY(listen(fd, 5));
         SAY(listen(listener, 7));
         SAY(accept(fd, nullptr, nullptr));
         const int other = socket(AF_INET, SOCK_STREAM, 0);
         SAY(bind_to(other, port));
         SAY(listen(-1, 5));
         SAY(accept(-1, nullptr, nullptr));
         sockaddr_in address = meeting_place(port);
         SAY(connect(other, reinterpret_cast<sockaddr*>(&address), 3));
         SAY(connect(-1, reinterpret_cast<sockaddr*>(&address), sizeof(address)));
         SAY(connect(0, reinterpret_cast<sockaddr*>(&address), sizeof(address)));
         address.sin_family = AF_INET6;
         SAY(connect(other, reinterpret_cast<sockaddr*>(&address), sizeof(address)));
         address.sin_family = 77;
         SAY(connect(other, reinterpret_cast<sockaddr*>(&address), sizeof(address)));
         SAY(bind(other, reinterpret_cast<sockaddr*>(&address), sizeof(address)));
         SAY(bind(other, reinterpret_cast<sockaddr*>(&address), 3));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connect_there();
         side.hear();
         SAY(close(fd));
       }},

      {"connect.late_and_receive",
       [](Side& side) {
         const int fd = accept_late(side);
         char buffer[8] = {};
         SAY(recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT));
         side.tell();
         side.say_data("received", recv_all(side, fd, 5));
         SAY(send(fd, "welcome", 7, 0));
         side.say_data("rest", recv_to_end(side, fd));
       },
       connect_late},

      {"connect.late_and_send",
       [](Side& side) {
         const int fd = accept_late(side);
         side.tell();
         SAY(send(fd, "welcome", 7, 0));
         side.say_data("received", recv_to_end(side, fd));
       },
       connect_late},

      {"connect.late_and_wait",
       [](Side& side) {
         const int fd = accept_late(side);
         const int events = epoll_create1(0);
         epoll_event event{};
         event.events = EPOLLIN;
         SAY(epoll_ctl(events, EPOLL_CTL_ADD, fd, &event));
         SAY(epoll_wait(events, &event, 1, 20));
         pollfd polled{fd, POLLIN, 0};
         SAY(poll(&polled, 1, 20));
         side.tell();
         SAY(epoll_wait(events, &event, 1, kPatienceMs));
         SAY(poll(&polled, 1, kPatienceMs));
         side.say_data("received", recv_all(side, fd, 5));
         SAY(send(fd, "welcome", 7, 0));
         side.say_data("rest", recv_to_end(side, fd));
       },
       connect_late},

      {"connect.late_and_fork",
       [](Side& side) {
         const int fd = accept_late(side);
         side.tell();
         const pid_t child = fork();
         if (child == 0) {
           side.say_data("received", recv_all(side, fd, 5));
           SAY(send(fd, "welcome", 7, 0));
           side.say_data("rest", recv_to_end(side, fd));
           _exit(0);
         }
         close(fd);
         int status = -1;
         waitpid(child, &status, 0);
         SAY(status);
       },
       connect_late},

      {"connect.late_and_fork_beside_accept",
       [](Side& side) {
         const int listener = side.listen_here(0);
         side.hear();
         close(accept(listener, nullptr, nullptr));
         SAY(listen(listener, 16));
         // The number that accept() will give.
         const int fd = dup(listener);
         close(fd);
         std::thread accepts([=] { require(accept(listener, nullptr, nullptr) == fd, "accept"); });
         while (fcntl(fd, F_GETFD) < 0) sched_yield();
         sleep_ms(3);
         const pid_t child = fork();
         if (child == 0) {
           side.say_data("received", recv_all(side, fd, 5));
           SAY(send(fd, "welcome", 7, 0));
           side.say_data("rest", recv_to_end(side, fd));
           _exit(0);
         }
         accepts.join();
         side.tell();
         close(fd);
         int status = -1;
         waitpid(child, &status, 0);
         SAY(status);
       },
       connect_late},

      {"connect.late_and_closed_unused",
       [](Side& side) {
         const int fd = accept_late(side);
         side.tell();
         side.hear();
         SAY(close(fd));
       },
       [](Side& side) {
         const int fd = begin_to_connect(side);
         side.hear();
         wait_for(side, fd, POLLOUT);
         set_blocking(fd, true);
         side.tell();
         side.say_data("rest", recv_to_end(side, fd));
         say_socket_error(side, fd);
       }},

      {"connect.late_and_closed",
       [](Side& side) {
         const int fd = accept_late(side);
         SAY(close(fd));
         side.tell();
         side.hear();
       },
       [](Side& side) {
         const int fd = begin_to_connect(side);
         side.hear();
         wait_for(side, fd, POLLRDHUP);
         say_socket_error(side, fd);
         char buffer[8];
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         side.tell();
       }},

      {"connect.dissolved_and_again",
       [](Side& side) {
         const int listener = side.listen_here();
         for (int i = 0; i < 3; ++i) {
           const int fd = accept(listener, nullptr, nullptr);
           side.say_data("received", recv_all(side, fd, 5));
           side.tell();
           wait_for(side, fd, POLLHUP);
           close(fd);
         }
       },
       [](Side& side) {
         const int port = side.hear();
         const int fd = socket(AF_INET, SOCK_STREAM, 0);
         sockaddr nothing{};
         nothing.sa_family = AF_UNSPEC;
         SAY(connect(fd, &nothing, sizeof(nothing)));
         for (int i = 0; i < 3; ++i) {
           SAY(connect_to(fd, port));
           send_text(side, fd, "hello");
           side.hear();
           SAY(connect(fd, &nothing, sizeof(nothing)));
         }
       }},

      {"connect.dissolved",
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_all(side, fd, 5));
         side.tell();
         wait_for(side, fd, POLLHUP);
         char buffer[8];
         SAY(recv(fd, buffer, sizeof(buffer), 0));
       },
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "hello");
         side.hear();
         sockaddr nothing{};
         nothing.sa_family = AF_UNSPEC;
         SAY(connect(fd, &nothing, sizeof(nothing)));
         char buffer[8];
         SAY(recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT));
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
       }},
  };
}

}  // namespace posix_cases
