// epoll on connections: level, edge and one-shot, and how sets change.
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "case.h"
#include "epoll_set.h"

namespace posix_cases {
namespace {

// Sends `steps` texts of 4 bytes, each when told, and ends when told.
void send_steps(Side& side, int steps) {
  const int fd = side.connected();
  for (int i = 0; i < steps; ++i) {
    side.hear();
    send_text(side, fd, "four");
  }
  side.hear();
  SAY(close(fd));
}

// The kernel wakes waiters after an end can be seen, and twice; a call that takes its lock comes
// after both.
void wait_end(const Side& side, int fd) {
  wait_for(side, fd, POLLRDHUP);
  wait_bytes(side, fd, 0);
}

}  // namespace

Cases epoll_cases() {
  return {
      {"epoll.level",
       [](Side& side) {
         const int fd = side.connected();
         EpollSet set(side);
         set.add(fd, EPOLLIN);
         set.say_events(0);
         side.tell();
         set.say_events();
         set.say_events();
         recv_all(side, fd, 3);
         set.say_events();
         recv_all(side, fd, 1);
         set.say_events(0);
         set.modify(fd, EPOLLOUT);
         set.say_events();
         set.modify(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
         set.say_events();
         side.tell();
         wait_for(side, fd, POLLRDHUP);
         set.say_events();
       },
       [](Side& side) { send_steps(side, 1); }},

      {"epoll.edge",
       [](Side& side) {
         const int fd = side.connected();
         EpollSet set(side);
         set.add(fd, EPOLLIN | EPOLLOUT | EPOLLET);
         set.say_events();
         set.say_events(20);
         side.tell();
         set.say_events();
         set.say_events(20);
         recv_all(side, fd, 2);
         set.say_events(20);
         // More comes before all is read: an edge.
         side.tell();
         set.say_events();
         recv_all(side, fd, 6);
         set.say_events(20);
         set.modify(fd, EPOLLIN | EPOLLOUT | EPOLLET);
         set.say_events();
         set.say_events(20);
         side.tell();
         wait_end(side, fd);
         set.say_events();
         set.say_events(20);
       },
       [](Side& side) { send_steps(side, 2); }},

      {"epoll.edge_of_data_that_is_there",
       [](Side& side) {
         const int fd = side.connected();
         side.tell();
         wait_bytes(side, fd, 4);
         EpollSet set(side);
         set.add(fd, EPOLLIN | EPOLLET);
         set.say_events();
         set.say_events(20);
         set.modify(fd, EPOLLIN | EPOLLET);
         set.say_events();
         set.remove(fd);
         set.add(fd, EPOLLIN | EPOLLET);
         set.say_events();
         set.say_events(20);
         side.tell();
       },
       [](Side& side) { send_steps(side, 1); }},

      {"epoll.edge_until_it_would_block",
       [](Side& side) {
         // As nginx and Go read: until EAGAIN, then wait; nothing may be missed.
         const int fd = side.connected();
         set_blocking(fd, false);
         EpollSet set(side);
         set.add(fd, EPOLLIN | EPOLLRDHUP | EPOLLET);
         Bytes data;
         Bytes part(10007);
         while (true) {
           const ssize_t now = recv(fd, part.data(), part.size(), 0);
           if (now == 0) break;
           if (now > 0) {
             data.insert(data.end(), part.begin(), part.begin() + now);
           } else if (set.wait(kPatienceMs) == 0) {
             side.say("a wake-up is lost");
             break;
           }
         }
         side.say_data("received", data);
       },
       [](Side& side) {
         const int fd = side.connected();
         for (unsigned i = 0; i < 200; ++i) {
           send_all(side, fd, pattern(20000, i));
           if (i % 50 == 0) sleep_ms(2);
         }
       }},

      {"epoll.edge_of_room",
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         recv_all(side, fd, static_cast<std::size_t>(side.hear()));
         side.say_data("rest", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         EpollSet set(side);
         set.add(fd, EPOLLOUT | EPOLLET);
         set.say_events();
         const std::size_t bytes = fill(side, fd);
         set.wait(0);
         set.say_events(20);
         side.tell();
         side.tell(static_cast<int>(bytes));
         set.say_events();
         SAY(send(fd, "more", 4, 0));
       }},

      // An arrival is an edge only for an interest in arrivals; an end is one for all.
      {"epoll.edge_without_interest_in_data",
       [](Side& side) {
         const int fd = side.connected();
         EpollSet room(side);
         EpollSet end(side);
         room.add(fd, EPOLLOUT | EPOLLET);
         end.add(fd, EPOLLRDHUP | EPOLLET);
         room.say_events();
         side.tell();
         wait_bytes(side, fd, 4);
         room.say_events(20);
         end.say_events(20);
         side.tell();
         wait_end(side, fd);
         end.say_events();
         end.say_events(20);
       },
       [](Side& side) { send_steps(side, 1); }},

      {"epoll.one_shot",
       [](Side& side) {
         const int fd = side.connected();
         EpollSet set(side);
         set.add(fd, EPOLLIN | EPOLLONESHOT);
         side.tell();
         set.say_events();
         set.say_events(20);
         side.tell();
         wait_bytes(side, fd, 8);
         set.say_events(20);
         set.modify(fd, EPOLLIN | EPOLLONESHOT);
         set.say_events();
         set.say_events(20);
         set.modify(fd, EPOLLIN | EPOLLET | EPOLLONESHOT);
         set.say_events();
         recv_all(side, fd, 8);
         set.modify(fd, EPOLLIN | EPOLLONESHOT);
         set.say_events(20);
         side.tell();
         set.say_events();
       },
       [](Side& side) { send_steps(side, 2); }},

      {"epoll.control",
       [](Side& side) {
         const int fd = side.connected();
         EpollSet set(side);
         set.modify(fd, EPOLLIN);
         set.remove(fd);
         set.add(fd, EPOLLIN);
         set.add(fd, EPOLLIN);
         set.remove(fd);
         set.add(-1, EPOLLIN);
         set.add(set.fd(), EPOLLIN);
         epoll_event event{};
         SAY(epoll_ctl(fd, EPOLL_CTL_ADD, fd, &event));
         SAY(epoll_ctl(set.fd(), 77, fd, &event));
         SAY(epoll_wait(set.fd(), &event, 0, 0));
         SAY(epoll_wait(fd, &event, 1, 0));
         SAY(epoll_create(0));
         SAY(epoll_create1(12345));
         side.tell();
       },
       [](Side& side) { send_steps(side, 0); }},

      {"epoll.removed_and_added_again",
       [](Side& side) {
         const int fd = side.connected();
         const int first = epoll_create1(0);
         const int second = epoll_create1(0);
         epoll_event event{};
         event.events = EPOLLIN;
         event.data.u64 = 1;
         SAY(epoll_ctl(first, EPOLL_CTL_ADD, fd, &event));
         SAY(epoll_ctl(first, EPOLL_CTL_DEL, fd, nullptr));
         SAY(epoll_ctl(first, EPOLL_CTL_DEL, fd, nullptr));
         SAY(epoll_ctl(first, EPOLL_CTL_MOD, fd, &event));
         SAY(epoll_ctl(second, EPOLL_CTL_ADD, fd, &event));
         side.tell();
         SAY(epoll_wait(second, &event, 1, kPatienceMs));
         SAY(epoll_wait(first, &event, 1, 20));
         event.data.u64 = 2;
         SAY(epoll_ctl(first, EPOLL_CTL_ADD, fd, &event));
         SAY(epoll_ctl(first, EPOLL_CTL_ADD, fd, &event));
         SAY(epoll_wait(first, &event, 1, kPatienceMs));
         SAY(event.data.u64);
         // In and out without looking, then with another descriptor of the same number.
         for (int i = 0; i < 10; ++i) {
           SAY(epoll_ctl(first, EPOLL_CTL_DEL, fd, nullptr));
           event.events = EPOLLOUT;
           SAY(epoll_ctl(first, EPOLL_CTL_ADD, fd, &event));
         }
         SAY(epoll_wait(first, &event, 1, kPatienceMs));
         side.say(epoll_names(event.events));
         SAY(epoll_ctl(first, EPOLL_CTL_DEL, fd, nullptr));
         const int copy = dup(fd);
         SAY(close(fd));
         SAY(epoll_wait(first, &event, 1, 20));
         int ends[2];
         require(pipe(ends) == 0, "pipe");
         SAY(ends[0] == fd);
         event.events = EPOLLIN;
         SAY(epoll_ctl(first, EPOLL_CTL_ADD, ends[0], &event));
         SAY(epoll_wait(first, &event, 1, 20));
         SAY(write(ends[1], "x", 1));
         SAY(epoll_wait(first, &event, 1, kPatienceMs));
         side.say_data("received", recv_all(side, copy, 5));
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         send_text(side, fd, "hello");
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"epoll.states",
       [](Side& side) {
         EpollSet set(side);
         const int fresh = socket(AF_INET, SOCK_STREAM, 0);
         set.add(fresh, EPOLLIN | EPOLLOUT);
         set.say_events();
         close(fresh);
         set.say_events(0);
         const int listener = side.listen_here();
         set.add(listener, EPOLLIN | EPOLLOUT);
         set.say_events();
         const int fd = accept(listener, nullptr, nullptr);
         set.say_events(0);
         set.remove(listener);
         set.add(fd, 0);
         set.say_events(0);
         side.tell();
         wait_bytes(side, fd, 4);
         set.say_events(0);
         const linger reset{1, 0};
         SAY(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)));
         SAY(close(fd));
         set.say_events(0);
       },
       [](Side& side) {
         EpollSet set(side);
         const int fd = side.connected();
         set.add(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
         side.hear();
         send_text(side, fd, "four");
         wait_for(side, fd, POLLERR);
         set.say_events();
         char byte = 0;
         SAY(recv(fd, &byte, 1, 0));
         set.say_events();
       }},

      {"epoll.connects",
       [](Side& side) {
         const int listener = side.listen_here();
         const int fd = accept(listener, nullptr, nullptr);
         side.say_data("received", recv_to_end(side, fd));
       },
       [](Side& side) {
         // As every event loop connects.
         const int port = side.hear();
         EpollSet set(side);
         const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
         SAY(connect_to(fd, port));
         set.add(fd, EPOLLIN | EPOLLOUT | EPOLLET);
         set.say_events();
         int error = -1;
         socklen_t length = sizeof(error);
         SAY(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
         SAY(error);
         SAY(send(fd, "hello", 5, 0));
       }},

      {"epoll.registered_before_connect",
       [](Side& side) {
         const int listener = side.listen_here();
         const int fd = accept(listener, nullptr, nullptr);
         send_text(side, fd, "welcome");
         side.say_data("received", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int port = side.hear();
         EpollSet set(side);
         const int fd = socket(AF_INET, SOCK_STREAM, 0);
         set.add(fd, EPOLLIN);
         SAY(connect_to(fd, port));
         wait_bytes(side, fd, 7);
         set.say_events();
         char buffer[8];
         SAY(recv(fd, buffer, 7, 0));
         set.say_events(0);
       }},
  };
}

}  // namespace posix_cases
