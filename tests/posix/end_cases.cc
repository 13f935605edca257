// What is left of a connection that has ended in several steps: which end or reset came first
// decides which calls tell of it, and how.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "bare_call.h"
#include "case.h"
#include "epoll_set.h"

namespace posix_cases {
namespace {

constexpr linger kReset{1, 0};

void reset(const Side& side, int fd) {
  SAY(setsockopt(fd, SOL_SOCKET, SO_LINGER, &kReset, sizeof(kReset)));
  SAY(close(fd));
}

int state_of(int fd) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 ? info.tcpi_state : -1;
}

// Until the state is that one, and says it: the kernel acknowledges some ends a little later.
void wait_state(const Side& side, int fd, int wanted) {
  for (int i = 0; i < kPatienceMs && state_of(fd) != wanted; ++i) sleep_ms(1);
  SAY(state_of(fd));
}

// Until the kernel's socket has the peer's end, of which this end asks nobody. Where two processors
// are busy TCP may else take the answer to what is sent first, and say ECONNRESET.
void await_end_in_kernel(int fd) {
  for (int i = 0; i < kPatienceMs; ++i) {
    tcp_info info{};
    socklen_t length = sizeof(info);
    if (bare_call(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, reinterpret_cast<long>(&info),
                  reinterpret_cast<long>(&length)) != 0 ||
        info.tcpi_state != TCP_ESTABLISHED)
      return;
    sleep_ms(1);
  }
}

// What every call says then, and what that leaves to the next.
void say_end(const Side& side, int fd) {
  char buffer[4];
  say_poll(side, fd);
  SAY(recv(fd, buffer, sizeof(buffer), 0));
  SAY(recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT));
  SAY(recv(fd, buffer, sizeof(buffer), MSG_PEEK));
  say_poll(side, fd);
  SAY(send(fd, "x", 1, MSG_NOSIGNAL));
  say_poll(side, fd);
  SAY(send(fd, "x", 1, MSG_NOSIGNAL));
  SAY(recv(fd, buffer, sizeof(buffer), 0));
  say_socket_error(side, fd);
  SAY(state_of(fd));
  sockaddr_in peer{};
  socklen_t length = sizeof(peer);
  SAY(getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length));
  SAY(shutdown(fd, SHUT_WR));
  say_poll(side, fd);
}

void close_when_told(Side& side) {
  const int fd = side.connected();
  side.hear();
  SAY(close(fd));
  side.tell();
}

void half_close_then_reset(Side& side) {
  const int fd = side.connected();
  SAY(shutdown(fd, SHUT_WR));
  side.hear();
  reset(side, fd);
}

// Connected, once the other side has closed in order.
int connected_and_closed(Side& side) {
  const int fd = side.connected();
  side.tell();
  side.hear();
  wait_for(side, fd, POLLRDHUP);
  return fd;
}

}  // namespace

Cases end_cases() {
  return {
      {"end.closed_then_sent_to",
       [](Side& side) {
         const int fd = connected_and_closed(side);
         SAY(send(fd, "", 0, MSG_NOSIGNAL));
         say_poll(side, fd);
         SAY(state_of(fd));
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
         wait_for(side, fd, POLLHUP);
         SAY(state_of(fd));
         say_end(side, fd);
       },
       close_when_told},

      {"end.sent_to_while_it_closed",
       [](Side& side) {
         // The peer has closed; nothing but the answer to what is sent tells.
         const int fd = side.connected();
         side.tell();
         side.hear();
         await_end_in_kernel(fd);
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
         wait_for(side, fd, POLLHUP);
         say_socket_error(side, fd);
         say_end(side, fd);
       },
       close_when_told},

      {"end.closed_then_sent_to_in_a_set",
       [](Side& side) {
         // The answer to what is sent is news too.
         const int fd = connected_and_closed(side);
         EpollSet set(side);
         set.add(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
         set.say_events();
         set.say_events(0);
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
         wait_for(side, fd, POLLHUP);
         set.say_events();
         set.say_events(0);
       },
       close_when_told},

      {"end.half_closed_then_reset",
       [](Side& side) {
         const int fd = side.connected();
         wait_for(side, fd, POLLRDHUP);
         say_poll(side, fd);
         SAY(state_of(fd));
         side.tell();
         wait_for(side, fd, POLLERR);
         say_end(side, fd);
       },
       half_close_then_reset},

      {"end.half_closed_then_reset_seen_by_option",
       [](Side& side) {
         const int fd = side.connected();
         side.tell();
         wait_for(side, fd, POLLERR);
         say_socket_error(side, fd);
         say_socket_error(side, fd);
         say_end(side, fd);
       },
       half_close_then_reset},

      {"end.half_closed_then_reset_with_data",
       [](Side& side) {
         const int fd = side.connected();
         wait_bytes(side, fd, 4);
         side.tell();
         wait_for(side, fd, POLLERR);
         char buffer[8] = {};
         SAY(recv(fd, buffer, 2, 0));
         SAY(recv(fd, buffer, 8, 0));
         side.say_data("received", buffer, 2);
         say_end(side, fd);
       },
       [](Side& side) {
         const int fd = side.connected();
         SAY(send(fd, "data", 4, 0));
         SAY(shutdown(fd, SHUT_WR));
         side.hear();
         reset(side, fd);
       }},

      {"end.half_closed_then_closed_with_unread_data",
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "unread");
         wait_for(side, fd, POLLERR);
         say_end(side, fd);
       },
       [](Side& side) {
         const int fd = side.connected();
         SAY(shutdown(fd, SHUT_WR));
         wait_bytes(side, fd, 6);
         SAY(close(fd));
       }},

      {"end.reset_after_our_end",
       [](Side& side) {
         const int fd = side.connected();
         SAY(shutdown(fd, SHUT_WR));
         wait_state(side, fd, TCP_FIN_WAIT2);
         side.tell();
         wait_for(side, fd, POLLERR);
         say_end(side, fd);
       },
       [](Side& side) {
         const int fd = side.connected();
         wait_for(side, fd, POLLRDHUP);
         side.hear();
         reset(side, fd);
       }},

      {"end.reset_after_both_ends",
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "unread");
         SAY(shutdown(fd, SHUT_WR));
         wait_for(side, fd, POLLHUP);
         wait_state(side, fd, TCP_CLOSE);
         side.tell();
         side.hear();
         // A reset would come at once.
         say_end(side, fd);
       },
       [](Side& side) {
         const int fd = side.connected();
         wait_for(side, fd, POLLRDHUP);
         wait_bytes(side, fd, 6);
         SAY(shutdown(fd, SHUT_WR));
         wait_for(side, fd, POLLHUP);
         wait_state(side, fd, TCP_CLOSE);
         side.hear();
         reset(side, fd);
         side.tell();
       }},

      {"end.shut_down_then_sent_to",
       [](Side& side) {
         const int fd = side.connected();
         wait_bytes(side, fd, 4);
         SAY(shutdown(fd, SHUT_RD));
         SAY(shutdown(fd, SHUT_WR));
         side.tell();
         wait_for(side, fd, POLLERR);
         char buffer[8] = {};
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         side.say_data("received", buffer, 4);
         side.tell();
         say_end(side, fd);
       },
       [](Side& side) {
         const int fd = side.connected();
         SAY(send(fd, "data", 4, 0));
         wait_for(side, fd, POLLRDHUP);
         side.hear();
         SAY(send(fd, "", 0, MSG_NOSIGNAL));
         say_poll(side, fd);
         SAY(send(fd, "xyz", 3, MSG_NOSIGNAL));
         wait_for(side, fd, POLLERR);
         side.hear();
         say_end(side, fd);
       }},

      {"end.shut_down_then_sent_to_and_closed",
       [](Side& side) {
         const int fd = side.connected();
         SAY(shutdown(fd, SHUT_RDWR));
         side.tell();
         side.hear();
         say_socket_error(side, fd);
         say_end(side, fd);
       },
       [](Side& side) {
         const int fd = side.connected();
         wait_for(side, fd, POLLRDHUP);
         side.hear();
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
         SAY(close(fd));
         side.tell();
       }},

      {"end.states",
       [](Side& side) {
         const int fd = side.connected();
         SAY(state_of(fd));
         SAY(shutdown(fd, SHUT_RD));
         SAY(state_of(fd));
         SAY(shutdown(fd, SHUT_WR));
         wait_state(side, fd, TCP_FIN_WAIT2);
         side.tell();
         wait_state(side, fd, TCP_CLOSE);
       },
       [](Side& side) {
         const int fd = side.connected();
         wait_state(side, fd, TCP_CLOSE_WAIT);
         char info[512] = {};
         for (const int wanted : {0, 1, 4}) {
           auto length = static_cast<socklen_t>(wanted);
           info[0] = info[1] = info[4] = 77;
           SAY(getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &length));
           SAY(length);
           SAY(info[0]);
           SAY(info[4]);
         }
         socklen_t length = 4;
         SAY(getsockopt(fd, IPPROTO_TCP, TCP_INFO, nullptr, &length));
         SAY(getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, nullptr));
         side.hear();
         SAY(shutdown(fd, SHUT_WR));
         wait_state(side, fd, TCP_CLOSE);
       }},

      {"end.never_accepted",
       [](Side& side) {
         const int listener = side.listen_here();
         side.hear();
         SAY(close(listener));
       },
       [](Side& side) {
         const int fd = side.connect_there();
         side.tell();
         wait_for(side, fd, POLLERR);
         say_end(side, fd);
       }},

      {"end.never_accepted_while_it_waits",
       [](Side& side) {
         const int listener = side.listen_here();
         side.hear();
         SAY(close(listener));
       },
       [](Side& side) {
         const int fd = side.connect_there();
         side.tell();
         char byte = 0;
         SAY(recv(fd, &byte, 1, 0));
         SAY(recv(fd, &byte, 1, 0));
         say_socket_error(side, fd);
       }},

      {"end.linger_of_the_listener",
       [](Side& side) {
         const int listener = socket(AF_INET, SOCK_STREAM, 0);
         SAY(setsockopt(listener, SOL_SOCKET, SO_LINGER, &kReset, sizeof(kReset)));
         sockaddr_in place = meeting_place(0);
         socklen_t length = sizeof(place);
         SAY(bind(listener, reinterpret_cast<sockaddr*>(&place), length));
         SAY(listen(listener, 5));
         SAY(getsockname(listener, reinterpret_cast<sockaddr*>(&place), &length));
         side.tell(ntohs(place.sin_port));
         const int first = accept(listener, nullptr, nullptr);
         linger got{};
         length = sizeof(got);
         SAY(getsockopt(first, SOL_SOCKET, SO_LINGER, &got, &length));
         SAY(got.l_onoff);
         SAY(got.l_linger);
         side.hear();
         SAY(close(first));
         // What is set later counts for what is accepted later.
         const linger none{0, 0};
         SAY(setsockopt(listener, SOL_SOCKET, SO_LINGER, &none, sizeof(none)));
         side.tell();
         const int second = accept(listener, nullptr, nullptr);
         side.hear();
         SAY(close(second));
         SAY(setsockopt(listener, SOL_SOCKET, SO_LINGER, &kReset, sizeof(kReset)));
         side.tell();
         const int third = accept(listener, nullptr, nullptr);
         SAY(setsockopt(third, SOL_SOCKET, SO_LINGER, &none, sizeof(none)));
         side.hear();
         SAY(close(third));
         side.tell();
       },
       [](Side& side) {
         const int port = side.hear();
         char buffer[8];
         for (const int last : {POLLERR, POLLRDHUP, POLLRDHUP}) {
           const int fd = socket(AF_INET, SOCK_STREAM, 0);
           SAY(connect_to(fd, port));
           side.tell();
           wait_for(side, fd, static_cast<short>(last));
           say_poll(side, fd);
           SAY(recv(fd, buffer, sizeof(buffer), 0));
           SAY(close(fd));
           side.hear();
         }
       }},
  };
}

}  // namespace posix_cases
