// Many short connections, none of which may be lost, to a server that waits by epoll.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>

#include "case.h"

namespace posix_cases {
namespace {

constexpr int kRounds = 300;
constexpr int kClients = 3;

// A server that sleeps in epoll until a connection or its bytes are there; `finish` is given each
// connection once it has been readable. Ends after `rounds` connections, or says that one is lost.
class Server {
 public:
  Server(const Side& side, unsigned flags) : side_(side), listener_(side.listen_here(64)) {
    set_blocking(listener_, false);
    control(listener_, EPOLLIN | flags);
    flags_ = flags;
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() {
    for (const int fd : {set_, listener_}) close(fd);
  }

  template <typename Finish>
  void serve(int rounds, const Finish& finish) {
    int accepted = 0;
    for (int finished = 0; finished < rounds;) {
      std::array<epoll_event, 8> events{};
      const int count = epoll_wait(set_, events.data(), 8, kPatienceMs / 2);
      if (count <= 0) {
        side_.say_result("a connection is lost: epoll_wait", count);
        side_.say(std::to_string(accepted) + " accepted, " + std::to_string(finished) +
                  " finished");
        return;
      }
      for (int i = 0; i < count; ++i) {
        const int ready = events[static_cast<std::size_t>(i)].data.fd;
        if (ready == listener_) {
          int fd = -1;
          while ((fd = accept4(listener_, nullptr, nullptr, 0)) >= 0) {
            ++accepted;
            control(fd, EPOLLIN | flags_);
          }
          continue;
        }
        finish(ready);
        close(ready);
        ++finished;
      }
    }
    side_.say(std::to_string(accepted) + " accepted");
  }

 private:
  void control(int fd, unsigned events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    require(epoll_ctl(set_, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
  }

  const Side& side_;
  int listener_;
  int set_ = epoll_create1(0);
  unsigned flags_ = 0;
};

template <typename Ask>
void connect_often(int port, int rounds, const Ask& ask) {
  for (int i = 0; i < rounds; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    require(connect_to(fd, port) == 0, "connect");
    ask(fd, i);
    close(fd);
  }
}

template <unsigned kFlags>
void answer_each(Side& side) {
  Server server(side, kFlags);
  int echoed = 0;
  server.serve(kRounds, [&](int fd) {
    char byte = 0;
    if (recv(fd, &byte, 1, 0) == 1 && send(fd, &byte, 1, 0) == 1) ++echoed;
  });
  SAY(echoed);
}

void ask_each(Side& side) {
  int echoed = 0;
  connect_often(side.hear(), kRounds, [&](int fd, int i) {
    char byte = static_cast<char>(i);
    if (send(fd, &byte, 1, 0) == 1 && recv(fd, &byte, 1, 0) == 1 && byte == static_cast<char>(i))
      ++echoed;
  });
  SAY(echoed);
}

void ask_by_threads(Side& side) {
  const int port = side.hear();
  std::atomic<int> echoed{0};
  std::array<std::thread, kClients> threads;
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      connect_often(port, kRounds / kClients, [&](int fd, int i) {
        char byte = static_cast<char>(i);
        if (send(fd, &byte, 1, 0) == 1 && recv(fd, &byte, 1, 0) == 1 &&
            byte == static_cast<char>(i))
          ++echoed;
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  SAY(echoed.load());
}

}  // namespace

Cases many_cases() {
  return {
      {"many.answered", answer_each<0>, ask_each},
      {"many.answered_edge", answer_each<EPOLLET>, ask_each},
      {"many.clients_at_once", answer_each<0>, ask_by_threads},

      {"many.closed_at_once",
       [](Side& side) {
         // The client has sent and gone before the server looks.
         Server server(side, 0);
         int good = 0;
         server.serve(kRounds, [&](int fd) {
           Bytes data(16);
           std::size_t bytes = 0;
           ssize_t got = 0;
           while ((got = recv(fd, data.data(), data.size(), 0)) > 0)
             bytes += static_cast<std::size_t>(got);
           if (got == 0 && bytes == 5) ++good;
           side.tell();
         });
         SAY(good);
       },
       [](Side& side) {
         connect_often(side.hear(), kRounds, [&](int fd, int i) {
           send_text(side, fd, "hello");
           // Not more under way than the listener keeps.
           if (i >= 32) side.hear();
         });
       }},

      {"many.nothing_sent",
       [](Side& side) {
         Server server(side, 0);
         int ended = 0;
         server.serve(kRounds, [&](int fd) {
           char byte = 0;
           if (recv(fd, &byte, 1, 0) == 0) ++ended;
           side.tell();
         });
         SAY(ended);
       },
       [](Side& side) {
         connect_often(side.hear(), kRounds, [&](int, int i) {
           if (i >= 32) side.hear();
         });
       }},

      {"many.not_blocking", answer_each<0>,
       [](Side& side) {
         // As event loops connect: they look again when epoll says so.
         const int port = side.hear();
         const int set = epoll_create1(0);
         int echoed = 0;
         for (int i = 0; i < kRounds; ++i) {
           const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
           connect_to(fd, port);
           epoll_event event{};
           event.events = EPOLLOUT;
           require(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
           if (epoll_wait(set, &event, 1, kPatienceMs / 2) != 1) side.say("a connect is lost");
           char byte = static_cast<char>(i);
           if (send(fd, &byte, 1, 0) != 1) side.say("a byte is refused");
           event.events = EPOLLIN;
           require(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0, "epoll_ctl");
           if (epoll_wait(set, &event, 1, kPatienceMs / 2) != 1) side.say("an answer is lost");
           if (recv(fd, &byte, 1, 0) == 1 && byte == static_cast<char>(i)) ++echoed;
           close(fd);
         }
         SAY(echoed);
         close(set);
       }},
  };
}

}  // namespace posix_cases
