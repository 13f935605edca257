// Programs that hand calls on connections to a ring of the kernel (io_uring), and make them
// themselves where there is none: libuv from 1.50 on adds to its set of epoll that way.
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "bare_call.h"
#include "case.h"
#include "ring.h"

namespace posix_cases {
namespace {

long by_library(long number, long first, long second, long third, long fourth, long fifth,
                long sixth) {
  return syscall(number, first, second, third, fourth, fifth, sixth);
}

// An event loop whose set is changed by a ring.
class Loop {
 public:
  Loop(const Side& side, Ring& ring) : side_(side), ring_(ring), set_(epoll_create1(0)) {
    require(set_ >= 0, "epoll_create1");
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop() { close(set_); }

  // `number` is what the program knows it by.
  void control(const char* name, int operation, int fd, unsigned events, std::uint64_t number) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = number;
    errno = 0;
    side_.say_result(name, ring_.control(set_, operation, fd, &event));
  }
  void say_event(int milliseconds = kPatienceMs) {
    epoll_event event{};
    const long count = epoll_wait(set_, &event, 1, milliseconds);
    if (side_.say_result("epoll_wait", count) != 1) return;
    side_.say(std::to_string(event.data.u64) + ": " + epoll_names(event.events));
  }

 private:
  const Side& side_;
  Ring& ring_;
  int set_;
};

// A server that waits for everything by its loop.
void serve_by_loop(const Side& side, Ring& ring) {
  const int listener = side.listen_here();
  Loop loop(side, ring);
  loop.control("add the listener", EPOLL_CTL_ADD, listener, EPOLLIN, 1);
  for (std::uint64_t i = 2; i < 5; ++i) {
    loop.say_event();
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK);
    SAY(fd >= 0);
    loop.control("add", EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLRDHUP, i);
    side.tell();
    loop.say_event();
    side.say_data("received", recv_all(side, fd, 5));
    loop.say_event(20);
    loop.control("add again", EPOLL_CTL_ADD, fd, EPOLLIN, i);
    loop.control("modify", EPOLL_CTL_MOD, fd, EPOLLOUT, i + 10);
    loop.say_event();
    send_text(side, fd, "welcome");
    loop.control("modify", EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLRDHUP, i + 20);
    side.tell();
    loop.say_event();
    char byte = 0;
    SAY(recv(fd, &byte, 1, 0));
    loop.control("take out", EPOLL_CTL_DEL, fd, 0, 0);
    loop.say_event(20);
    SAY(close(fd));
  }
}

void be_served(Side& side) {
  const int port = side.hear();
  for (int i = 0; i < 3; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(connect_to(fd, port));
    side.hear();
    send_text(side, fd, "hello");
    side.say_data("received", recv_all(side, fd, 7));
    side.hear();
    SAY(shutdown(fd, SHUT_WR));
    side.say_data("rest", recv_to_end(side, fd));
    SAY(close(fd));
  }
}

// A client that waits by its loop for its connection, made before or after the ring.
void connect_by_loop(const Side& side, Ring& ring) {
  const int port = side.hear();
  Loop loop(side, ring);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  SAY(connect_to(fd, port));
  loop.control("add", EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT | EPOLLET, 7);
  loop.say_event();
  SAY(send(fd, "hello", 5, 0));
  wait_bytes(side, fd, 7);
  loop.say_event();
  side.say_data("received", recv_all(side, fd, 7));
  side.tell();
  wait_for(side, fd, POLLRDHUP);
  loop.control("modify", EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLRDHUP, 8);
  loop.say_event();
  SAY(close(fd));
}

void greet(Side& side) {
  const int listener = side.listen_here();
  const int fd = accept(listener, nullptr, nullptr);
  side.say_data("received", recv_all(side, fd, 5));
  send_text(side, fd, "welcome");
  side.hear();
  SAY(close(fd));
}

// Bytes by the ring and past it.
void exchange_by_ring(Side& side, Ring& ring) {
  const int fd = side.connected();
  char buffer[32] = {};
  SAY(ring.send(fd, "by the ring, ", 13));
  send_text(side, fd, "by send, ");
  SAY(ring.send(fd, "and again", 9));
  wait_bytes(side, fd, 31);
  SAY(ring.recv(fd, buffer, 13));
  side.say_data("received", buffer, 13);
  SAY(recv(fd, buffer, 9, 0));
  side.say_data("received", buffer, 9);
  SAY(ring.recv(fd, buffer, sizeof(buffer)));
  side.say_data("received", buffer, 9);
  side.tell();
  side.hear();
  SAY(shutdown(fd, SHUT_WR));
  SAY(ring.recv(fd, buffer, sizeof(buffer)));
}

}  // namespace

Cases io_uring_cases() {
  return {
      {"io_uring.server",
       [](Side& side) {
         Ring ring(by_library);
         serve_by_loop(side, ring);
       },
       be_served},

      {"io_uring.server_bare",
       [](Side& side) {
         Ring ring(bare_call);
         serve_by_loop(side, ring);
       },
       be_served},

      {"io_uring.client", greet,
       [](Side& side) {
         Ring ring(by_library);
         connect_by_loop(side, ring);
       }},

      {"io_uring.client_bare", greet,
       [](Side& side) {
         Ring ring(bare_call);
         connect_by_loop(side, ring);
       }},

      {"io_uring.bytes",
       [](Side& side) {
         Ring ring(by_library);
         exchange_by_ring(side, ring);
       },
       [](Side& side) {
         Ring ring(by_library);
         exchange_by_ring(side, ring);
       }},

      {"io_uring.bytes_bare",
       [](Side& side) {
         Ring ring(bare_call);
         exchange_by_ring(side, ring);
       },
       [](Side& side) {
         Ring ring(bare_call);
         exchange_by_ring(side, ring);
       }},

      {"io_uring.after_a_connection",
       [](Side& side) {
         // The first ring comes when there is a connection, and is only for others.
         const int fd = side.connected();
         send_text(side, fd, "before, ");
         Ring ring(by_library);
         send_text(side, fd, "after");
         side.say_data("received", recv_to_end(side, fd));
         SAY(close(fd));
         serve_by_loop(side, ring);
       },
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "hello");
         side.say_data("received", recv_all(side, fd, 13));
         SAY(close(fd));
         be_served(side);
       }},
  };
}

}  // namespace posix_cases
