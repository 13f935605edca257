// Sets of epoll that others use meanwhile: threads that sleep in them, children of a fork, handlers
// of signals.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "case.h"

namespace posix_cases {
namespace {

// The first socket is added to a set while a thread sleeps there, and has data only later.
void add_first_socket(Side& side, int (*sleep)(int set, epoll_event& event)) {
  const int fd = side.connected();
  constexpr int kRounds = 20;
  int early = 0;
  int good = 0;
  for (int i = 0; i < kRounds; ++i) {
    const int set = epoll_create1(0);
    std::atomic<int> number{0};
    std::atomic<bool> awake{false};
    epoll_event got{};
    std::thread sleeper([&] {
      number = gettid();
      const int count = sleep(set, got);
      awake = true;
      if (count == 1 && got.events == EPOLLIN && got.data.u64 == 0x123456789) ++good;
    });
    wait_asleep(number);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = 0x123456789;
    require(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    sleep_ms(5);
    if (awake) ++early;
    side.tell(1);
    sleeper.join();
    recv_all(side, fd, 1);
    close(set);
  }
  side.tell(0);
  SAY(early);
  SAY(good == kRounds);
}

void send_when_told(Side& side) {
  const int fd = side.connected();
  while (side.hear() != 0) send_text(side, fd, "x");
}

constexpr int kClients = 24;
constexpr int kRounds = 20;

// A connection of a server whose threads share a set; only one at a time has it in hand.
struct Served {
  int fd = -1;
  std::atomic<bool> in_hand{false};
};

class OneShotServer {
 public:
  OneShotServer(int listener, unsigned flags)
      : flags_(flags | EPOLLONESHOT), set_(epoll_create1(0)), end_(eventfd(0, 0)) {
    listener_.fd = listener;
    set_blocking(listener, false);
    std::atomic<int> numbers[4] = {};
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (std::atomic<int>& number : numbers)
      threads.emplace_back([this, &number] {
        number = gettid();
        serve();
      });
    for (const std::atomic<int>& number : numbers) wait_asleep(number);
    arm(EPOLL_CTL_ADD, listener_);
    for (std::thread& thread : threads) thread.join();
    close(set_);
    close(end_);
  }
  int strange() const { return strange_; }
  int ended() const { return ended_; }

 private:
  void arm(int operation, Served& one) const {
    epoll_event event{};
    event.events = EPOLLIN | flags_;
    event.data.ptr = &one;
    require(epoll_ctl(set_, operation, one.fd, &event) == 0, "epoll_ctl");
  }

  void accept_all() {
    int fd = -1;
    while ((fd = accept4(listener_.fd, nullptr, nullptr, SOCK_NONBLOCK)) >= 0) {
      Served* served = nullptr;
      {
        const std::lock_guard guard(lock_);
        served = &all_.emplace_back();
      }
      served->fd = fd;
      arm(EPOLL_CTL_ADD, *served);
    }
    listener_.in_hand = false;
    arm(EPOLL_CTL_MOD, listener_);
  }

  // False: the last connection has ended.
  bool answer(Served& one) {
    char bytes[64];
    const ssize_t got = recv(one.fd, bytes, sizeof(bytes), 0);
    if (got < 0 && errno == EAGAIN) ++strange_;
    if (got > 0) send(one.fd, bytes, static_cast<std::size_t>(got), 0);
    if (got == 0) {
      close(one.fd);
      return ++ended_ != kClients;
    }
    one.in_hand = false;
    arm(EPOLL_CTL_MOD, one);
    return true;
  }

  void serve() {
    for (;;) {
      epoll_event event{};
      if (epoll_wait(set_, &event, 1, -1) != 1) continue;
      if (event.data.ptr == nullptr) return;
      Served& one = *static_cast<Served*>(event.data.ptr);
      if ((event.events & EPOLLOUT) != 0 || one.in_hand.exchange(true)) ++strange_;
      if (&one == &listener_) {
        accept_all();
      } else if (!answer(one)) {
        // Wakes all, as it stays readable.
        epoll_event last{};
        last.events = EPOLLIN;
        require(epoll_ctl(set_, EPOLL_CTL_ADD, end_, &last) == 0, "epoll_ctl");
        require(eventfd_write(end_, 1) == 0, "eventfd_write");
      }
    }
  }

  const unsigned flags_;
  const int set_;
  const int end_;
  Served listener_;
  std::mutex lock_;
  std::list<Served> all_;
  std::atomic<int> strange_{0};
  std::atomic<int> ended_{0};
};

void serve_once(Side& side, unsigned flags) {
  const int listener = side.listen_here(kClients);
  const OneShotServer server(listener, flags);
  SAY(server.strange());
  SAY(server.ended());
}

void use_server(Side& side) {
  const int port = side.hear();
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < kClients / 4; ++k) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        require(connect_to(fd, port) == 0, "connect");
        for (int round = 0; round < kRounds; ++round) {
          send_text(side, fd, "hello");
          if (recv_all(side, fd, 5).size() == 5) ++good;
        }
        close(fd);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  SAY(good == kClients * kRounds);
}

// Makes sets, fills and closes them, as long as it is wanted.
void use_sets(int fd, const std::atomic<bool>& end) {
  while (!end) {
    const int set = epoll_create1(0);
    epoll_event event{};
    event.events = EPOLLIN;
    std::array<int, 8> copies{};
    for (int& copy : copies) {
      copy = dup(fd);
      epoll_ctl(set, EPOLL_CTL_ADD, copy, &event);
    }
    epoll_wait(set, &event, 1, 0);
    for (const int copy : copies) close(copy);
    close(set);
  }
}

// A victim for the handler, which closes it in the midst of what the thread does.
volatile sig_atomic_t victim = -1;

void close_victim(int) {
  const int kept_errno = errno;
  if (victim >= 0) {
    close(victim);
    victim = -1;
  }
  errno = kept_errno;
}

void close_often() {
  struct sigaction action {};
  action.sa_handler = close_victim;
  action.sa_flags = SA_RESTART;
  require(sigaction(SIGALRM, &action, nullptr) == 0, "sigaction");
  const itimerval often{{0, 300}, {0, 300}};
  require(setitimer(ITIMER_REAL, &often, nullptr) == 0, "setitimer");
}

void stop_closing() {
  const itimerval never{};
  require(setitimer(ITIMER_REAL, &never, nullptr) == 0, "setitimer");
}

}  // namespace

Cases epoll_shared_cases() {
  return {
      {"epoll_shared.first_socket",
       [](Side& side) {
         add_first_socket(side, [](int set, epoll_event& event) {
           return epoll_wait(set, &event, 1, kPatienceMs);
         });
       },
       send_when_told},
      {"epoll_shared.first_socket_poll",
       [](Side& side) {
         add_first_socket(side, [](int set, epoll_event& event) {
           pollfd polled{set, POLLIN, 0};
           const int ready = poll(&polled, 1, kPatienceMs);
           return ready == 1 ? epoll_wait(set, &event, 1, 0) : ready;
         });
       },
       send_when_told},

      {"epoll_shared.once", [](Side& side) { serve_once(side, 0); }, use_server},
      {"epoll_shared.once_edge", [](Side& side) { serve_once(side, EPOLLET); }, use_server},

      {"epoll_shared.forked",
       // While other threads change sets, of which the child has copies.
       [](Side& side) {
         const int fd = side.connected();
         std::atomic<bool> end{false};
         std::vector<std::thread> threads;
         threads.reserve(3);
         for (int i = 0; i < 3; ++i) threads.emplace_back([&] { use_sets(fd, end); });
         int good = 0;
         for (int i = 0; i < 150; ++i) {
           const pid_t child = i % 3 == 0 ? _Fork() : fork();
           require(child >= 0, "fork");
           if (child == 0) {
             alarm(kPatienceMs / 1000);
             const int set = epoll_create1(0);
             epoll_event event{};
             event.events = EPOLLIN;
             const bool added = epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0;
             const bool quiet = epoll_wait(set, &event, 1, 0) == 0;
             for (int number = 3; number < 200; ++number) close(number);
             _exit(added && quiet ? 0 : 1);
           }
           int status = -1;
           require(waitpid(child, &status, 0) == child, "waitpid");
           if (status == 0) ++good;
         }
         end = true;
         for (std::thread& thread : threads) thread.join();
         SAY(good);
         side.tell(1);
         side.say_data("received", recv_all(side, fd, 1));
         side.tell(0);
       },
       send_when_told},

      {"epoll_shared.closed_by_handler",
       [](Side& side) {
         const int listener = side.listen_here(64);
         const int set = epoll_create1(0);
         epoll_event event{};
         event.events = EPOLLIN;
         const int lasting = accept(listener, nullptr, nullptr);
         side.hear();  // connect() has returned: until then an offer of leat-run's may be late
         require(epoll_ctl(set, EPOLL_CTL_ADD, lasting, &event) == 0, "epoll_ctl");
         close_often();
         int closed = 0;
         for (int i = 0; i < 60; ++i) {
           const int fd = accept(listener, nullptr, nullptr);
           side.hear();
           require(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
           const int inner = epoll_create1(0);
           require(epoll_ctl(inner, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
           for (const int next : {fd, inner}) {
             victim = next;
             for (unsigned round = 0; victim >= 0; ++round) {
               epoll_wait(set, &event, 1, 0);
               event.events = EPOLLIN;
               epoll_ctl(set, EPOLL_CTL_MOD, lasting, &event);
               epoll_ctl(set, EPOLL_CTL_ADD, listener, &event);
               epoll_ctl(set, EPOLL_CTL_DEL, listener, nullptr);
               void* memory = malloc(unknown(std::size_t{5000}));
               free(memory);
               pollfd polled{set, POLLIN, 0};
               poll(&polled, 1, 0);
             }
           }
           ++closed;
         }
         stop_closing();
         SAY(closed);
         SAY(epoll_wait(set, &event, 1, 0));
         side.tell();
         SAY(epoll_wait(set, &event, 1, kPatienceMs));
         side.say_data("received", recv_all(side, lasting, 1));
         side.tell();
       },
       [](Side& side) {
         const int port = side.hear();
         const int lasting = socket(AF_INET, SOCK_STREAM, 0);
         SAY(connect_to(lasting, port));
         side.tell();
         int ended = 0;
         for (int i = 0; i < 60; ++i) {
           const int fd = socket(AF_INET, SOCK_STREAM, 0);
           require(connect_to(fd, port) == 0, "connect");
           side.tell();
           char byte = 0;
           if (recv(fd, &byte, 1, 0) == 0) ++ended;
           close(fd);
         }
         SAY(ended);
         side.hear();
         send_text(side, lasting, "x");
         side.hear();
       }},
  };
}

}  // namespace posix_cases
