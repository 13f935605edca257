// In which order a socket is made, added to a set of epoll, bound, connected, copied and closed:
// what the set says must not depend on what leat knew of the socket when it was added.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "case.h"
#include "epoll_set.h"

namespace posix_cases {
namespace {

// A listener that is in the set from before bind() on: what comes for it comes as for any other.
void listen_after_adding(Side& side, unsigned events) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  EpollSet set(side);
  set.add(listener, events);
  set.say_events(0);  // of a socket that is not connected
  sockaddr_in place = meeting_place(0);
  SAY(bind(listener, reinterpret_cast<sockaddr*>(&place), sizeof(place)));
  SAY(listen(listener, 8));
  if ((events & EPOLLONESHOT) != 0) set.modify(listener, events);
  set.say_events(0);
  socklen_t size = sizeof(place);
  SAY(getsockname(listener, reinterpret_cast<sockaddr*>(&place), &size));
  for (int i = 0; i < 2; ++i) {
    side.tell(ntohs(place.sin_port));
    set.say_events();
    if ((events & (EPOLLET | EPOLLONESHOT)) == 0) set.say_events();
    if ((events & EPOLLONESHOT) != 0) {
      set.say_events(0);
      set.modify(listener, events);
      set.say_events();
    }
    const int fd = accept(listener, nullptr, nullptr);
    side.say_data("received", recv_all(side, fd, 5));
    SAY(close(fd));
    if ((events & EPOLLONESHOT) != 0) set.modify(listener, events);
    set.say_events(0);
  }
  // The wait ends when its time is over, also with a connection there that it does not wait for.
  set.modify(listener, EPOLLIN);
  SAY(lasted_ms(50, [&] { set.say_events(50); }));
  set.modify(listener, EPOLLOUT);
  side.tell(ntohs(place.sin_port));
  SAY(lasted_ms(50, [&] { set.say_events(50); }));
  set.remove(listener);
  set.say_events(0);
  set.add(listener, EPOLLIN);
  set.say_events();
  const int last = accept(listener, nullptr, nullptr);
  side.say_data("received", recv_all(side, last, 5));
  SAY(close(listener));
  set.say_events(0);
}

void connect_when_told(Side& side) {
  for (int i = 0; i < 3; ++i) {
    const int port = side.hear();
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(connect_to(fd, port));
    send_text(side, fd, "hello");
    side.say_data("rest", recv_to_end(side, fd));
    close(fd);
  }
}

// Two connections, each of which gets a greeting and is closed after an answer.
void greet_two(Side& side) {
  const int listener = side.listen_here();
  for (int i = 0; i < 2; ++i) {
    const int fd = accept(listener, nullptr, nullptr);
    send_text(side, fd, "hello");
    side.say_data("received", recv_to_end(side, fd));
    close(fd);
  }
}

// As of a kernel before Linux 5.11.
bool forbid_epoll_pwait2() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{sizeof(program) / sizeof(program[0]), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

}  // namespace

Cases epoll_order_cases() {
  return {
      {"epoll_order.listener_level", [](Side& side) { listen_after_adding(side, EPOLLIN); },
       connect_when_told},
      {"epoll_order.listener_edge",
       [](Side& side) { listen_after_adding(side, EPOLLIN | EPOLLET); }, connect_when_told},
      {"epoll_order.listener_once",
       [](Side& side) { listen_after_adding(side, EPOLLIN | EPOLLONESHOT); }, connect_when_told},

      {"epoll_order.added_then_connected", greet_two,
       [](Side& side) {
         const int port = side.hear();
         for (const unsigned flags : {0U, static_cast<unsigned>(EPOLLONESHOT)}) {
           EpollSet set(side);
           const int fd = socket(AF_INET, SOCK_STREAM, 0);
           set.add(fd, EPOLLIN | flags);
           set.say_events(0);
           SAY(connect_to(fd, port));
           wait_for(side, fd, POLLIN);
           set.modify(fd, EPOLLIN | flags);
           set.say_events();
           set.say_events(0);
           side.say_data("received", recv_all(side, fd, 5));
           set.modify(fd, EPOLLOUT | flags);
           set.say_events();
           set.say_events(0);
           send_text(side, fd, "answer");
           SAY(close(fd));
           set.say_events(0);
         }
       }},

      {"epoll_order.connecting_once",
       // What has fired for the end of the handshake does not fire again for the same.
       greet_two,
       [](Side& side) {
         const int port = side.hear();
         for (const unsigned flags : {EPOLLONESHOT | 0U, EPOLLONESHOT | EPOLLET | 0U}) {
           EpollSet set(side);
           const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
           SAY(connect_to(fd, port));
           set.add(fd, EPOLLOUT | flags);
           set.say_events();
           say_socket_error(side, fd);
           set.say_events(0);
           send_text(side, fd, "answer");
           set.say_events(0);
           wait_bytes(side, fd, 5);
           set.say_events(0);
           set.modify(fd, EPOLLIN | flags);
           set.say_events();
           set.say_events(0);
           SAY(close(fd));
         }
       }},

      {"epoll_order.copied_then_connected", greet_two,
       [](Side& side) {
         // The set goes on with what a copy means, whatever that becomes.
         const int port = side.hear();
         for (int i = 0; i < 2; ++i) {
           EpollSet set(side);
           const int fd = socket(AF_INET, SOCK_STREAM, 0);
           set.add(fd, EPOLLIN);
           const int copy = dup(fd);
           SAY(close(fd));
           set.say_events(0);
           SAY(connect_to(copy, port));
           set.say_events();
           side.say_data("received", recv_all(side, copy, 5));
           set.say_events(0);
           send_text(side, copy, "answer");
           SAY(close(copy));
           set.say_events(0);
         }
       }},

      {"epoll_order.number_used_again",
       // In one set, with the same number: a connection, a listener, a pipe, a connection.
       [](Side& side) {
         const int listener = side.listen_here();
         EpollSet set(side);
         const auto at_number = [&](int fd) {
           SAY(dup2(fd, 90));
           SAY(close(fd));
           set.add(90, EPOLLIN);
           set.say_events(0);
         };
         for (int i = 0; i < 2; ++i) {
           at_number(accept(listener, nullptr, nullptr));
           side.tell();
           set.say_events();
           side.say_data("received", recv_all(side, 90, 5));
           if (i == 0) {
             at_number(socket(AF_INET, SOCK_STREAM, 0));
             SAY(listen(90, 1));
             set.say_events(0);
             int ends[2];
             require(pipe(ends) == 0, "pipe");
             at_number(ends[0]);
             SAY(write(ends[1], "x", 1));
             set.say_events();
             close(ends[1]);
           }
         }
         set.remove(90);
         SAY(close(90));
         set.say_events(0);
       },
       [](Side& side) {
         const int port = side.hear();
         for (int i = 0; i < 2; ++i) {
           const int fd = socket(AF_INET, SOCK_STREAM, 0);
           SAY(connect_to(fd, port));
           side.hear();
           send_text(side, fd, "hello");
           side.say_data("rest", recv_to_end(side, fd));
           close(fd);
         }
       }},

      {"epoll_order.set_of_another_number",
       [](Side& side) {
         // The outer set lost the number under which it was made; the inner one's number comes to
         // mean the outer one.
         const int fd = side.connected();
         epoll_event event{};
         event.events = EPOLLIN;
         const int made = epoll_create1(0);
         const int outer = dup(made);
         SAY(close(made));
         const int inner = epoll_create1(0);
         SAY(epoll_ctl(outer, EPOLL_CTL_ADD, fd, &event));
         SAY(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event));
         SAY(epoll_ctl(inner, EPOLL_CTL_ADD, fd, &event));
         SAY(epoll_wait(outer, &event, 1, 0));
         SAY(dup2(outer, inner));
         SAY(epoll_wait(outer, &event, 1, 0));
         pollfd polled{inner, POLLIN, 0};
         SAY(poll(&polled, 1, 0));
         side.tell();
         SAY(poll(&polled, 1, kPatienceMs));
         SAY(epoll_wait(inner, &event, 1, kPatienceMs));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         send_text(side, fd, "x");
         side.hear();
       }},

      {"epoll_order.without_pwait2",
       [](Side& side) {
         require(forbid_epoll_pwait2(), "seccomp");
         const int fd = side.connected();
         EpollSet empty(side);
         SAY(lasted_ms(30, [&] { empty.say_events(30); }));
         EpollSet set(side);
         set.add(fd, EPOLLIN);
         SAY(lasted_ms(30, [&] { set.say_events(30); }));
         side.tell();
         set.say_events();
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         send_text(side, fd, "x");
         side.hear();
       }},
  };
}

}  // namespace posix_cases
