// Several epoll sets, sets of sets, and sets of all kinds of descriptors.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "case.h"
#include "epoll_set.h"

namespace posix_cases {
namespace {

// Sends a byte whenever told, until told 0.
void send_when_told(Side& side) {
  const int fd = side.connected();
  while (side.hear() != 0) send_text(side, fd, "x");
}

}  // namespace

Cases epoll_mixed_cases() {
  return {
      {"epoll_mixed.kinds",
       [](Side& side) {
         const int fd = side.connected();
         int ends[2];
         require(pipe(ends) == 0, "pipe");
         const int event = eventfd(0, EFD_NONBLOCK);
         const int timer = timerfd_create(CLOCK_MONOTONIC, 0);
         EpollSet set(side);
         set.add(fd, EPOLLIN);
         set.add(ends[0], EPOLLIN);
         set.add(event, EPOLLIN | EPOLLET);
         set.add(timer, EPOLLIN);
         set.say_events(0);
         SAY(write(ends[1], "x", 1));
         set.say_events();
         SAY(eventfd_write(event, 3));
         set.say_events();
         set.say_events();
         char byte = 0;
         SAY(read(ends[0], &byte, 1));
         const itimerspec soon{{}, {0, 20000000}};
         SAY(timerfd_settime(timer, 0, &soon, nullptr));
         set.say_events();
         side.tell(1);
         wait_bytes(side, fd, 1);
         set.say_events();
         recv_all(side, fd, 1);
         set.say_events();
         SAY(close(ends[1]));
         set.say_events();
         side.tell(0);
       },
       send_when_told},

      {"epoll_mixed.nested",
       [](Side& side) {
         const int fd = side.connected();
         EpollSet inner(side);
         EpollSet outer(side);
         inner.add(fd, EPOLLIN);
         outer.add(inner.fd(), EPOLLIN);
         outer.say_events(0);
         pollfd polled{inner.fd(), POLLIN, 0};
         SAY(poll(&polled, 1, 0));
         side.tell(1);
         outer.say_events();
         SAY(poll(&polled, 1, 0));
         side.say(poll_names(polled.revents));
         fd_set readable;
         FD_ZERO(&readable);
         FD_SET(outer.fd(), &readable);
         timeval now{};
         SAY(select(outer.fd() + 1, &readable, nullptr, nullptr, &now));
         inner.say_events();
         recv_all(side, fd, 1);
         outer.say_events(0);
         SAY(poll(&polled, 1, 0));
         // And while something waits on the outer one.
         std::thread later([&] {
           sleep_ms(20);
           side.tell(1);
         });
         outer.say_events();
         later.join();
         side.tell(0);
       },
       send_when_told},

      {"epoll_mixed.becomes_its_own_member",
       [](Side& side) {
         // The number of a member comes to mean the set itself.
         const int fd = side.connected();
         const int outer = epoll_create1(0);
         const int inner = epoll_create1(0);
         const int kept = dup(inner);
         epoll_event event{};
         event.events = EPOLLIN;
         event.data.u64 = 1;
         SAY(epoll_ctl(inner, EPOLL_CTL_ADD, fd, &event));
         event.data.u64 = 2;
         SAY(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event));
         SAY(dup2(outer, inner) == inner);
         SAY(epoll_wait(outer, &event, 1, 0));
         pollfd polled{outer, POLLIN, 0};
         SAY(poll(&polled, 1, 0));
         SAY(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event));
         SAY(epoll_ctl(outer, EPOLL_CTL_DEL, inner, nullptr));
         side.tell(1);
         wait_bytes(side, fd, 1);
         SAY(epoll_wait(kept, &event, 1, kPatienceMs));
         SAY(event.data.u64);
         SAY(epoll_wait(outer, &event, 1, kPatienceMs));
         SAY(event.data.u64);
         SAY(epoll_wait(inner, &event, 1, kPatienceMs));
         SAY(event.data.u64);
         SAY(poll(&polled, 1, 0));
         // The last number of what was its member goes.
         SAY(close(kept));
         SAY(epoll_wait(outer, &event, 1, 20));
         SAY(epoll_wait(inner, &event, 1, 20));
         event.events = EPOLLIN;
         event.data.u64 = 3;
         SAY(epoll_ctl(inner, EPOLL_CTL_ADD, fd, &event));
         SAY(epoll_wait(outer, &event, 1, kPatienceMs));
         SAY(event.data.u64);
         side.tell(0);
       },
       send_when_told},

      {"epoll_mixed.two_sets",
       [](Side& side) {
         const int fd = side.connected();
         EpollSet first(side);
         EpollSet second(side);
         first.add(fd, EPOLLIN);
         second.add(fd, EPOLLIN | EPOLLET);
         side.tell(1);
         first.say_events();
         second.say_events();
         first.say_events();
         second.say_events(20);
         recv_all(side, fd, 1);
         first.say_events(0);
         first.remove(fd);
         side.tell(1);
         second.say_events();
         first.say_events(0);
         side.tell(0);
       },
       send_when_told},

      {"epoll_mixed.exclusive",
       [](Side& side) {
         const int listener = side.listen_here();
         EpollSet first(side);
         EpollSet second(side);
         first.add(listener, EPOLLIN | EPOLLEXCLUSIVE);
         second.add(listener, EPOLLIN | EPOLLEXCLUSIVE);
         first.modify(listener, EPOLLIN | EPOLLEXCLUSIVE);
         std::atomic<int> woken{0};
         const auto wait = [&](EpollSet& set) {
           if (set.wait(kPatienceMs) > 0) ++woken;
         };
         std::thread one([&] { wait(first); });
         std::thread other([&] { wait(second); });
         sleep_ms(30);
         side.tell();
         side.tell();
         one.join();
         other.join();
         // At least one of them; with two connections, mostly both.
         SAY(woken >= 1);
         int accepted = 0;
         for (int i = 0; i < 2; ++i) accepted += accept(listener, nullptr, nullptr) >= 0 ? 1 : 0;
         SAY(accepted);
         EpollSet third(side);
         const int fd = socket(AF_INET, SOCK_STREAM, 0);
         third.add(fd, EPOLLIN | EPOLLOUT | EPOLLEXCLUSIVE);
         third.say_events();
       },
       [](Side& side) {
         const int port = side.hear();
         for (int i = 0; i < 2; ++i) {
           side.hear();
           const int fd = socket(AF_INET, SOCK_STREAM, 0);
           SAY(connect_to(fd, port));
           if (i == 0) sleep_ms(20);
         }
       }},

      {"epoll_mixed.exclusive_connection",
       [](Side& side) {
         const int fd = side.connected();
         EpollSet set(side);
         set.add(fd, EPOLLIN | EPOLLONESHOT | EPOLLEXCLUSIVE);
         set.add(fd, EPOLLIN | EPOLLRDHUP | EPOLLEXCLUSIVE);
         set.add(fd, EPOLLIN | EPOLLEXCLUSIVE);
         set.modify(fd, EPOLLIN);
         set.modify(fd, EPOLLIN | EPOLLEXCLUSIVE);
         set.say_events(0);
         side.tell(1);
         set.say_events();
         set.remove(fd);
         set.add(fd, EPOLLIN);
         set.modify(fd, EPOLLIN | EPOLLEXCLUSIVE);
         set.say_events();
         side.tell(0);
       },
       send_when_told},

      {"epoll_mixed.exclusive_while_connecting",
       [](Side& side) {
         const int listener = side.listen_here();
         const int fd = accept(listener, nullptr, nullptr);
         side.say_data("received", recv_all(side, fd, 5));
         send_text(side, fd, "answer");
         side.hear();
       },
       [](Side& side) {
         const int port = side.hear();
         EpollSet set(side);
         const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
         SAY(connect_to(fd, port));
         set.add(fd, EPOLLIN | EPOLLOUT | EPOLLEXCLUSIVE);
         set.say_events();
         SAY(send(fd, "hello", 5, 0));
         wait_bytes(side, fd, 6);
         set.say_events();
         char buffer[8];
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         set.say_events();
         side.tell();
       }},

      {"epoll_mixed.closed_and_copied",
       [](Side& side) {
         const int fd = side.connected();
         EpollSet set(side);
         set.add(fd, EPOLLIN);
         const int copy = dup(fd);
         SAY(close(fd));
         // The registration lives as long as the connection, not the number.
         side.tell(1);
         set.say_events();
         recv_all(side, copy, 1);
         set.say_events(0);
         side.tell(1);
         wait_bytes(side, copy, 1);
         SAY(close(copy));
         set.say_events(0);
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         send_text(side, fd, "x");
         side.hear();
         send_text(side, fd, "x");
         wait_for(side, fd, POLLERR);
       }},

      {"epoll_mixed.connection_replaced",
       [](Side& side) {
         // A new connection with the number of a closed one is another one.
         const int listener = side.listen_here();
         EpollSet set(side);
         for (int i = 0; i < 3; ++i) {
           const int accepted = accept(listener, nullptr, nullptr);
           // A number of which nothing else makes use in between.
           const int fd = fcntl(accepted, F_DUPFD, 500);
           SAY(fd);
           SAY(close(accepted));
           set.add(fd, EPOLLIN);
           set.say_events(0);
           side.tell();
           set.say_events();
           recv_all(side, fd, 1);
           SAY(close(fd));
           set.say_events(0);
         }
       },
       [](Side& side) {
         const int port = side.hear();
         for (int i = 0; i < 3; ++i) {
           const int fd = socket(AF_INET, SOCK_STREAM, 0);
           SAY(connect_to(fd, port));
           side.hear();
           send_text(side, fd, "x");
           side.say_data("rest", recv_to_end(side, fd));
           SAY(close(fd));
         }
       }},

      {"epoll_mixed.signal_masks",
       [](Side& side) {
         const int fd = side.connected();
         EpollSet set(side);
         set.add(fd, EPOLLIN);
         sigset_t all;
         sigfillset(&all);
         epoll_event event{};
         side.tell(1);
         SAY(epoll_pwait(set.fd(), &event, 1, kPatienceMs, &all));
         const timespec patience{kPatienceMs / 1000, 0};
         SAY(epoll_pwait2(set.fd(), &event, 1, &patience, &all));
         recv_all(side, fd, 1);
         const timespec soon{0, 20000000};
         SAY(epoll_pwait2(set.fd(), &event, 1, &soon, nullptr));
         SAY(epoll_pwait(set.fd(), &event, 1, 20, nullptr));
         side.tell(0);
       },
       send_when_told},

      {"epoll_mixed.changed_while_waiting",
       [](Side& side) {
         const int fd = side.connected();
         EpollSet set(side);
         epoll_event event{};
         event.events = EPOLLOUT;
         std::thread later([&] {
           sleep_ms(20);
           epoll_ctl(set.fd(), EPOLL_CTL_ADD, fd, &event);
         });
         SAY(set.wait(kPatienceMs));
         later.join();
         event.events = EPOLLIN;
         SAY(epoll_ctl(set.fd(), EPOLL_CTL_MOD, fd, &event));
         side.tell(1);
         SAY(set.wait(kPatienceMs));
         side.tell(0);
       },
       send_when_told},

      {"epoll_mixed.used_by_child",
       [](Side& side) {
         // Made before fork, used after it, as by event loops that become daemons.
         const int fd = side.connected();
         EpollSet set(side);
         set.add(fd, EPOLLIN);
         const pid_t child = fork();
         if (child == 0) {
           side.tell(1);
           set.say_events();
           recv_all(side, fd, 1);
           set.say_events(0);
           _exit(0);
         }
         int status = -1;
         require(waitpid(child, &status, 0) == child, "waitpid");
         SAY(status);
         side.tell(0);
       },
       send_when_told},
  };
}

}  // namespace posix_cases
