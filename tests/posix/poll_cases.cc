// poll, ppoll, select and pselect: what each state of a connection shows.
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "case.h"

namespace posix_cases {
namespace {

void say_poll_for(const Side& side, int fd, short events) {
  pollfd polled{fd, events, 0};
  SAY(poll(&polled, 1, 0));
  side.say(poll_names(polled.revents));
}

void say_select(const Side& side, int fd) {
  fd_set readable;
  fd_set writable;
  fd_set exceptional;
  FD_ZERO(&readable);
  FD_ZERO(&writable);
  FD_ZERO(&exceptional);
  FD_SET(fd, &readable);
  FD_SET(fd, &writable);
  FD_SET(fd, &exceptional);
  timeval now{};
  SAY(select(fd + 1, &readable, &writable, &exceptional, &now));
  SAY(FD_ISSET(fd, &readable) != 0);
  SAY(FD_ISSET(fd, &writable) != 0);
  SAY(FD_ISSET(fd, &exceptional) != 0);
}

timespec milliseconds(long count) { return {count / 1000, count % 1000 * 1000000}; }

}  // namespace

Cases poll_cases() {
  return {
      {"poll.states",
       [](Side& side) {
         const int fresh = socket(AF_INET, SOCK_STREAM, 0);
         say_poll(side, fresh);
         say_select(side, fresh);
         const int listener = side.listen_here();
         say_poll(side, listener);
         say_select(side, listener);
         side.tell();
         wait_for(side, listener, POLLIN);
         say_poll(side, listener);
         const int fd = accept(listener, nullptr, nullptr);
         side.hear();  // connect() has returned: until then an offer of leat-run's may be late
         say_poll(side, listener);
         say_poll(side, fd);
         say_poll_for(side, fd, 0);
         say_select(side, fd);
         side.tell();
         wait_bytes(side, fd, 5);
         say_poll(side, fd);
         say_poll_for(side, fd, POLLIN);
         say_poll_for(side, fd, POLLRDNORM | POLLWRNORM);
         say_select(side, fd);
         side.tell();
         wait_for(side, fd, POLLRDHUP);
         say_poll(side, fd);
         say_poll_for(side, fd, POLLOUT);
         recv_all(side, fd, 5);
         say_poll(side, fd);
         say_select(side, fd);
         SAY(shutdown(fd, SHUT_WR));
         wait_for(side, fd, POLLHUP);
         say_poll(side, fd);
         say_poll_for(side, fd, 0);
         say_select(side, fd);
         SAY(close(fd));
         say_poll(side, fd);
       },
       [](Side& side) {
         const int port = side.hear();
         side.hear();
         const int fd = socket(AF_INET, SOCK_STREAM, 0);
         SAY(connect_to(fd, port));
         side.tell();
         side.hear();
         send_text(side, fd, "hello");
         side.hear();
         SAY(shutdown(fd, SHUT_WR));
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"poll.several",
       [](Side& side) {
         const int listener = side.listen_here();
         const int first = accept(listener, nullptr, nullptr);
         const int second = accept(listener, nullptr, nullptr);
         pollfd polled[] = {
             {first, POLLIN, 0}, {-1, POLLIN, 99}, {second, POLLIN, 0}, {499, POLLIN, 0}};
         SAY(poll(polled, 3, 0));
         side.tell();
         SAY(poll(polled, 3, kPatienceMs));
         for (const pollfd& one : polled) side.say(poll_names(one.revents));
         SAY(poll(polled, 4, kPatienceMs));
         for (const pollfd& one : polled) side.say(poll_names(one.revents));
         side.tell();
         wait_bytes(side, first, 1);
         SAY(poll(polled, 3, kPatienceMs));
         for (const pollfd& one : polled) side.say(poll_names(one.revents));
         fd_set set;
         FD_ZERO(&set);
         FD_SET(first, &set);
         FD_SET(second, &set);
         FD_SET(listener, &set);
         SAY(select(second + 1, &set, nullptr, nullptr, nullptr));
         SAY(FD_ISSET(first, &set) != 0);
         SAY(FD_ISSET(second, &set) != 0);
         SAY(FD_ISSET(listener, &set) != 0);
         FD_SET(499, &set);
         SAY(select(500, &set, nullptr, nullptr, nullptr));
         SAY(select(-1, &set, nullptr, nullptr, nullptr));
         side.tell();
       },
       [](Side& side) {
         const int port = side.hear();
         int connections[2];
         for (int& fd : connections) {
           fd = socket(AF_INET, SOCK_STREAM, 0);
           SAY(connect_to(fd, port));
         }
         side.hear();
         send_text(side, connections[1], "second");
         side.hear();
         send_text(side, connections[0], "first");
         side.hear();
       }},

      {"poll.select_does_not_tell_of_hang_ups",
       [](Side& side) {
         // No events are asked for: poll() reports these always.
         const int fd = side.connected();
         SAY(shutdown(fd, SHUT_RDWR));
         wait_for(side, fd, POLLHUP);
         fd_set set;
         FD_ZERO(&set);
         FD_SET(fd, &set);
         timeval left{0, 30000};
         SAY(lasted_ms(30, [&] { SAY(select(fd + 1, nullptr, nullptr, &set, &left)); }));
         SAY(FD_ISSET(fd, &set) != 0);
       },
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("rest", recv_to_end(side, fd));
         SAY(shutdown(fd, SHUT_RDWR));
       }},

      {"poll.mixed",
       [](Side& side) {
         const int fd = side.connected();
         int ends[2];
         require(pipe(ends) == 0, "pipe");
         const int event = eventfd(0, 0);
         const int timer = timerfd_create(CLOCK_MONOTONIC, 0);
         const itimerspec soon{{}, milliseconds(30)};
         const auto say_mixed = [&](int timeout) {
           pollfd polled[] = {
               {fd, POLLIN, 0}, {ends[0], POLLIN, 0}, {event, POLLIN, 0}, {timer, POLLIN, 0}};
           SAY(poll(polled, 4, timeout));
           for (const pollfd& one : polled) side.say(poll_names(one.revents));
         };
         say_mixed(0);
         SAY(timerfd_settime(timer, 0, &soon, nullptr));
         say_mixed(kPatienceMs);
         const itimerspec never{};
         SAY(timerfd_settime(timer, 0, &never, nullptr));
         SAY(write(ends[1], "x", 1));
         say_mixed(kPatienceMs);
         char byte = 0;
         SAY(read(ends[0], &byte, 1));
         SAY(eventfd_write(event, 1));
         say_mixed(kPatienceMs);
         eventfd_t count = 0;
         SAY(eventfd_read(event, &count));
         side.tell();
         say_mixed(kPatienceMs);
         SAY(write(ends[1], "x", 1));
         say_mixed(kPatienceMs);
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         send_text(side, fd, "x");
         side.hear();
       }},

      {"poll.woken",
       [](Side& side) {
         const int fd = side.connected();
         char buffer[16];
         pollfd polled{fd, POLLIN, 0};
         side.tell();
         SAY(poll(&polled, 1, -1));
         SAY(recv(fd, buffer, 1, 0));
         side.tell();
         SAY(ppoll(&polled, 1, nullptr, nullptr));
         SAY(recv(fd, buffer, 1, 0));
         fd_set set;
         FD_ZERO(&set);
         FD_SET(fd, &set);
         side.tell();
         SAY(select(fd + 1, &set, nullptr, nullptr, nullptr));
         SAY(recv(fd, buffer, 1, 0));
         FD_SET(fd, &set);
         side.tell();
         SAY(pselect(fd + 1, &set, nullptr, nullptr, nullptr, nullptr));
         SAY(recv(fd, buffer, 1, 0));
         side.tell();
         polled.events = POLLRDHUP;
         SAY(poll(&polled, 1, kPatienceMs));
         side.say(poll_names(polled.revents));
       },
       [](Side& side) {
         const int fd = side.connected();
         for (int i = 0; i < 4; ++i) {
           side.hear();
           sleep_ms(20);
           send_text(side, fd, "x");
         }
         side.hear();
         sleep_ms(20);
         SAY(close(fd));
       }},

      {"poll.times",
       [](Side& side) {
         const int fd = side.connected();
         const int listener = socket(AF_INET, SOCK_STREAM, 0);
         SAY(listen(listener, 1));
         fd_set set;
         // More microseconds than a second has are seconds.
         for (const int one : {fd, listener}) {
           FD_ZERO(&set);
           FD_SET(one, &set);
           timeval time{0, 1'050'000};
           SAY(lasted_ms(1050, [&] { SAY(select(one + 1, &set, nullptr, nullptr, &time)); }));
         }
         const timespec wrong[] = {{0, 1'000'000'000}, {0, -1}, {-1, 0}};
         pollfd polled{fd, POLLIN, 0};
         const int events = epoll_create1(0);
         epoll_event event{};
         event.events = EPOLLIN;
         SAY(epoll_ctl(events, EPOLL_CTL_ADD, fd, &event));
         for (const timespec& time : wrong) {
           SAY(ppoll(&polled, 1, &time, nullptr));
           FD_SET(fd, &set);
           SAY(pselect(fd + 1, &set, nullptr, nullptr, &time, nullptr));
           SAY(epoll_pwait2(events, &event, 1, &time, nullptr));
         }
         for (const timeval& time : {timeval{0, -1}, timeval{-1, 0}, timeval{-1, 1'000'000}}) {
           timeval given = time;
           FD_SET(fd, &set);
           SAY(select(fd + 1, &set, nullptr, nullptr, &given));
         }
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         SAY(close(fd));
       }},

      {"poll.time_left_after_signal",
       [](Side& side) {
         // Which programs go on with.
         const int fd = side.connected();
         struct sigaction action {};
         action.sa_handler = [](int) {};
         require(sigaction(SIGALRM, &action, nullptr) == 0, "sigaction");
         const itimerval soon{{0, 200000}, {0, 200000}};
         require(setitimer(ITIMER_REAL, &soon, nullptr) == 0, "setitimer");
         fd_set set;
         FD_ZERO(&set);
         FD_SET(fd, &set);
         timeval time{100, 0};
         SAY(select(fd + 1, &set, nullptr, nullptr, &time));
         SAY(time.tv_sec < 100 && time.tv_sec > 50);
         const itimerval never{};
         require(setitimer(ITIMER_REAL, &never, nullptr) == 0, "setitimer");
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         SAY(close(fd));
       }},

      {"poll.backpressure",
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         const int bytes = side.hear();
         sleep_ms(20);
         recv_all(side, fd, static_cast<std::size_t>(bytes));
         side.say_data("rest", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         say_poll(side, fd);
         const std::size_t bytes = fill(side, fd);
         say_poll(side, fd);
         pollfd polled{fd, POLLOUT, 0};
         SAY(poll(&polled, 1, 20));
         say_select(side, fd);
         side.tell();
         side.tell(static_cast<int>(bytes));
         SAY(poll(&polled, 1, kPatienceMs));
         side.say(poll_names(polled.revents));
         SAY(send(fd, "more", 4, 0));
       }},

      {"poll.by_two_threads",
       [](Side& side) {
         // Both must be woken: nobody takes the event away.
         const int fd = side.connected();
         pollfd first{fd, POLLIN, 0};
         pollfd second{fd, POLLIN, 0};
         std::thread other([&] { poll(&second, 1, kPatienceMs); });
         sleep_ms(20);
         side.tell();
         SAY(poll(&first, 1, kPatienceMs));
         other.join();
         side.say(poll_names(first.revents));
         side.say(poll_names(second.revents));
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
