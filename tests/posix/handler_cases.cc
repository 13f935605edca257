// close() and other calls that are safe in a handler of a signal, which comes while the thread is
// in the middle of calls that are not.
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <functional>

#include "case.h"

namespace posix_cases {
namespace {

constexpr int kRounds = 200;

// The connection that the handler takes and closes, or -1.
std::atomic<int> victim{-1};
static_assert(std::atomic<int>::is_always_lock_free);

void close_victim(int) {
  const int kept_errno = errno;
  const int fd = victim.exchange(-1);
  if (fd >= 0) close(fd);
  errno = kept_errno;
}

void shut_and_close_victim(int) {
  const int kept_errno = errno;
  const int fd = victim.exchange(-1);
  if (fd >= 0) {
    send(fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(fd, SHUT_RDWR);
    close(fd);
  }
  errno = kept_errno;
}

void handle_alarms(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  require(sigaction(SIGALRM, &action, nullptr) == 0, "sigaction");
}

void alarm_every(int microseconds) {
  const itimerval often{{0, microseconds}, {0, microseconds}};
  require(setitimer(ITIMER_REAL, &often, nullptr) == 0, "setitimer");
}

int connection_to(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  require(connect_to(fd, port) == 0, "connect");
  return fd;
}

// Gives the handler a connection each time, and makes `call` until that is closed.
void lose_connections(Side& side, void (*handler)(int), const std::function<void(int port)>& call) {
  const int port = side.hear();
  handle_alarms(handler);
  int closed = 0;
  for (int i = 0; i < kRounds; ++i) {
    const int fd = connection_to(port);
    send_text(side, fd, "x");
    victim = fd;
    alarm_every(150);
    while (victim >= 0) call(port);
    alarm_every(0);
    ++closed;
  }
  SAY(closed);
  side.tell();
}

// Takes whatever comes, and its end.
void serve_until_told(Side& side) {
  const int listener = side.listen_here(64);
  set_blocking(listener, false);
  pollfd polled[2] = {{listener, POLLIN, 0}, {kHear, POLLIN, 0}};
  int good = 0;
  for (;;) {
    require(poll(polled, 2, kPatienceMs) > 0, "poll");
    int fd = -1;
    while ((fd = accept(listener, nullptr, nullptr)) >= 0) {
      set_blocking(fd, true);
      char byte = 0;
      if (recv(fd, &byte, 1, 0) == 1 && byte == 'x') ++good;
      while (recv(fd, &byte, 1, 0) > 0) {
      }
      close(fd);
    }
    if (polled[1].revents != 0) break;
  }
  side.hear();
  SAY(good >= kRounds);
}

}  // namespace

Cases handler_cases() {
  return {
      {"handler.closes_beside_epoll_ctl", serve_until_told,
       [](Side& side) {
         const int set = epoll_create1(0);
         int other = -1;
         lose_connections(side, close_victim, [&](int port) {
           if (other < 0) {
             other = connection_to(port);
             send_text(side, other, "x");
           }
           epoll_event event{};
           event.events = EPOLLIN;
           require(epoll_ctl(set, EPOLL_CTL_ADD, other, &event) == 0, "epoll_ctl");
           epoll_wait(set, &event, 1, 0);
           require(epoll_ctl(set, EPOLL_CTL_DEL, other, nullptr) == 0, "epoll_ctl");
           if (victim < 0) {
             close(other);
             other = -1;
           }
         });
       }},

      {"handler.closes_beside_connect_and_close", serve_until_told,
       [](Side& side) {
         lose_connections(side, close_victim, [&](int port) {
           const int fd = connection_to(port);
           send_text(side, fd, "x");
           close(fd);
         });
       }},

      {"handler.shuts_beside_connect_and_close", serve_until_told,
       [](Side& side) {
         lose_connections(side, shut_and_close_victim, [&](int port) {
           const int fd = connection_to(port);
           send_text(side, fd, "x");
           close(fd);
         });
       }},

      {"handler.closes_beside_dup", serve_until_told,
       [](Side& side) {
         int other = -1;
         lose_connections(side, close_victim, [&](int port) {
           if (other < 0) {
             other = connection_to(port);
             send_text(side, other, "x");
           }
           const int copy = dup(other);
           dup2(other, copy);
           close(copy);
           close(epoll_create1(0));
           if (victim < 0) {
             close(other);
             other = -1;
           }
         });
       }},

      {"handler.closes_beside_accept",
       [](Side& side) {
         // The server's handler closes what was accepted before.
         const int listener = side.listen_here(64);
         handle_alarms(close_victim);
         alarm_every(150);
         int accepted = 0;
         for (int i = 0; i < kRounds; ++i) {
           const int fd = accept(listener, nullptr, nullptr);
           char byte = 0;
           if (fd >= 0 && recv(fd, &byte, 1, 0) == 1) ++accepted;
           // The one before may still wait for its alarm.
           const int before = victim.exchange(fd);
           if (before >= 0) close(before);
         }
         while (victim >= 0) sleep_ms(1);
         alarm_every(0);
         SAY(accepted);
       },
       [](Side& side) {
         const int port = side.hear();
         int ended = 0;
         for (int i = 0; i < kRounds; ++i) {
           const int fd = connection_to(port);
           char byte = 'x';
           send_text(side, fd, "x");
           // Every other one is left to itself, so that accepting goes on meanwhile.
           if (i % 2 == 1 || recv(fd, &byte, 1, 0) == 0) ++ended;
           close(fd);
         }
         SAY(ended);
       }},
  };
}

}  // namespace posix_cases
