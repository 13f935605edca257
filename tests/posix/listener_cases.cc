// Listening sockets in sets of epoll, put there before they are bound, before they listen or after.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "case.h"
#include "epoll_set.h"

namespace posix_cases {
namespace {

enum class When { kFresh, kBound, kListening };

// A listener that does not block, put into the set at that time.
int listen_in(EpollSet& set, When when, unsigned events, bool look_between) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  const auto add = [&] {
    set.add(listener, events);
    if (look_between) set.say_events(0);
  };
  if (when == When::kFresh) add();
  const sockaddr_in address = meeting_place(0);
  require(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0,
          "bind");
  if (when == When::kBound) add();
  require(listen(listener, 16) == 0, "listen");
  if (when == When::kListening) add();
  return listener;
}

int port_of(int listener) {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  require(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0,
          "getsockname");
  return ntohs(address.sin_port);
}

// Accepts until no connection is left; each gets an answer.
void accept_all(const Side& side, int listener) {
  int fd = -1;
  while ((fd = accept(listener, nullptr, nullptr)) >= 0) {
    set_blocking(fd, true);
    side.say_data("received", recv_all(side, fd, 5));
    send_text(side, fd, "welcome");
    side.say_data("rest", recv_to_end(side, fd));
    close(fd);
  }
  SAY(errno == EAGAIN);
}

constexpr int kClients = 3;

void serve(Side& side, When when, unsigned events, bool look_between) {
  EpollSet set(side);
  const int listener = listen_in(set, when, events, look_between);
  set.say_events(20);
  side.tell(port_of(listener));
  for (int i = 0; i < kClients; ++i) {
    set.say_events();
    if ((events & (EPOLLET | EPOLLONESHOT)) == 0) {
      set.say_events();
      set.say_events(0);
    }
    accept_all(side, listener);
    set.say_events(20);
    if ((events & EPOLLONESHOT) != 0) set.modify(listener, events);
    set.say_events(20);
    side.tell();
  }
  SAY(close(listener));
  set.say_events(20);
}

// `kLook`: whether the set is looked at before the socket listens; one shot would be used up by
// what it says of a socket that is not connected.
template <When kWhen, unsigned kEvents, bool kLook>
void serve(Side& side) {
  serve(side, kWhen, kEvents, kLook);
}

void be_served(Side& side) {
  const int port = side.hear();
  for (int i = 0; i < kClients; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(connect_to(fd, port));
    send_text(side, fd, "hello");
    side.say_data("received", recv_all(side, fd, 7));
    SAY(close(fd));
    side.hear();
  }
}

constexpr unsigned kLevel = EPOLLIN;
constexpr unsigned kEdge = EPOLLIN | EPOLLET;
constexpr unsigned kOneShot = EPOLLIN | EPOLLONESHOT;
// As Boost.Asio adds every socket at once.
constexpr unsigned kAsio = EPOLLIN | EPOLLPRI | EPOLLERR | EPOLLHUP | EPOLLET;
constexpr unsigned kExclusive = EPOLLIN | EPOLLEXCLUSIVE;

}  // namespace

Cases listener_cases() {
  return {
      {"listener.fresh_level", serve<When::kFresh, kLevel, false>, be_served},
      {"listener.fresh_level_looked_at", serve<When::kFresh, kLevel, true>, be_served},
      {"listener.fresh_edge", serve<When::kFresh, kEdge, false>, be_served},
      {"listener.fresh_edge_looked_at", serve<When::kFresh, kEdge, true>, be_served},
      {"listener.fresh_one_shot", serve<When::kFresh, kOneShot, false>, be_served},
      {"listener.fresh_edge_of_all", serve<When::kFresh, kAsio, false>, be_served},
      {"listener.fresh_exclusive", serve<When::kFresh, kExclusive, true>, be_served},
      {"listener.bound_level", serve<When::kBound, kLevel, false>, be_served},
      {"listener.bound_level_looked_at", serve<When::kBound, kLevel, true>, be_served},
      {"listener.bound_edge", serve<When::kBound, kEdge, false>, be_served},
      {"listener.bound_edge_looked_at", serve<When::kBound, kEdge, true>, be_served},
      {"listener.bound_one_shot", serve<When::kBound, kOneShot, false>, be_served},
      {"listener.bound_edge_of_all", serve<When::kBound, kAsio, true>, be_served},
      {"listener.bound_exclusive", serve<When::kBound, kExclusive, false>, be_served},
      {"listener.listening_level", serve<When::kListening, kLevel, true>, be_served},
      {"listener.listening_edge", serve<When::kListening, kEdge, true>, be_served},
      {"listener.listening_one_shot", serve<When::kListening, kOneShot, true>, be_served},
      {"listener.listening_edge_of_all", serve<When::kListening, kAsio, true>, be_served},

      {"listener.beside_connections",
       [](Side& side) {
         // The set has a connection when the listener comes, and the listener's own after that.
         const int first = side.connected();
         EpollSet set(side);
         set.add(first, EPOLLIN);
         const int listener = listen_in(set, When::kFresh, kLevel, true);
         set.say_events(0);
         side.tell(port_of(listener));
         set.say_events();
         const int second = accept(listener, nullptr, nullptr);
         set.add(second, EPOLLIN);
         set.say_events(20);
         side.tell();
         wait_bytes(side, first, 4);
         wait_bytes(side, second, 3);
         set.say_events();
         set.remove(listener);
         side.say_data("received", recv_all(side, first, 4));
         set.say_events();
         side.say_data("received", recv_all(side, second, 3));
         set.say_events(20);
         side.tell();
       },
       [](Side& side) {
         const int first = side.connected();
         const int second = socket(AF_INET, SOCK_STREAM, 0);
         SAY(connect_to(second, side.hear()));
         side.hear();
         send_text(side, first, "four");
         send_text(side, second, "two");
         side.hear();
       }},

      {"listener.listens_again",
       [](Side& side) {
         // What was a listener, then shut down, listens again, in the set all the time.
         EpollSet set(side);
         const int listener = listen_in(set, When::kFresh, kLevel, false);
         set.say_events(20);
         SAY(shutdown(listener, SHUT_RD));
         set.say_events();
         SAY(listen(listener, 4));
         set.say_events(20);
         side.tell(port_of(listener));
         set.say_events();
         accept_all(side, listener);
         set.say_events(20);
         side.tell();
       },
       [](Side& side) {
         const int fd = socket(AF_INET, SOCK_STREAM, 0);
         SAY(connect_to(fd, side.hear()));
         send_text(side, fd, "hello");
         side.say_data("received", recv_all(side, fd, 7));
         SAY(close(fd));
         side.hear();
       }},
  };
}

}  // namespace posix_cases
