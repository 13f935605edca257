// fork() in a process whose other threads change sets of epoll and open and close connections.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "case.h"

namespace posix_cases {
namespace {

constexpr int kForks = 200;
constexpr int kGood = 42;

// Serves whatever comes until told to stop: each connection gets its byte back.
void echo_until_told(Side& side) {
  const int listener = side.listen_here(64);
  set_blocking(listener, false);
  std::atomic<bool> stop{false};
  std::thread hears([&] {
    side.hear();
    stop = true;
  });
  std::vector<pollfd> polled{{listener, POLLIN, 0}};
  while (!stop) {
    if (poll(polled.data(), polled.size(), 20) <= 0) continue;
    for (std::size_t i = polled.size() - 1; i > 0; --i) {
      if (polled[i].revents == 0) continue;
      char byte = 0;
      if (recv(polled[i].fd, &byte, 1, 0) == 1 && send(polled[i].fd, &byte, 1, MSG_NOSIGNAL) == 1)
        continue;
      close(polled[i].fd);
      polled.erase(polled.begin() + static_cast<std::ptrdiff_t>(i));
    }
    int fd = -1;
    while ((fd = accept(listener, nullptr, nullptr)) >= 0) polled.push_back({fd, POLLIN, 0});
  }
  hears.join();
  side.say("served");
}

int connection_to(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  require(connect_to(fd, port) == 0, "connect");
  return fd;
}

void control(int set, int operation, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  require(epoll_ctl(set, operation, fd, &event) == 0, "epoll_ctl");
}

// Puts its connection in and out, and waits in between.
void change_set(int set, int fd, const std::atomic<bool>& stop) {
  while (!stop) {
    epoll_event event{};
    control(set, EPOLL_CTL_ADD, fd);
    epoll_wait(set, &event, 1, 0);
    control(set, EPOLL_CTL_MOD, fd);
    control(set, EPOLL_CTL_DEL, fd);
  }
}

void open_and_close(int set, int port, const std::atomic<bool>& stop) {
  while (!stop) {
    const int fd = connection_to(port);
    control(set, EPOLL_CTL_ADD, fd);
    char byte = 'x';
    if (send(fd, &byte, 1, 0) == 1) recv(fd, &byte, 1, 0);
    close(fd);
    const int other = epoll_create1(0);
    close(other);
  }
}

// Of functions that are safe in a child of a process with threads.
int use_in_child(int set, int fd) {
  epoll_event event{};
  event.events = EPOLLOUT;
  const int own = epoll_create1(0);
  if (own < 0 || epoll_ctl(own, EPOLL_CTL_ADD, fd, &event) != 0) return 1;
  if (epoll_wait(own, &event, 1, kPatienceMs) != 1) return 2;
  if (epoll_wait(set, &event, 1, 0) < 0) return 3;
  pollfd polled{fd, POLLOUT, 0};
  if (poll(&polled, 1, 0) != 1) return 4;
  return close(own) == 0 && close(set) == 0 && close(fd) == 0 ? kGood : 5;
}

void fork_often(Side& side, pid_t (*fork_one)()) {
  const int port = side.hear();
  const std::array<int, 2> sets{epoll_create1(0), epoll_create1(0)};
  const std::array<int, 2> connections{connection_to(port), connection_to(port)};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 2; ++i)
    threads.emplace_back([&, i] { change_set(sets[i], connections[i], stop); });
  threads.emplace_back([&] { open_and_close(sets[0], port, stop); });
  int good = 0;
  for (int i = 0; i < kForks; ++i) {
    const std::size_t which = static_cast<std::size_t>(i) % 2;
    const pid_t child = fork_one();
    require(child >= 0, "fork");
    if (child == 0) _exit(use_in_child(sets[which], connections[which]));
    int status = -1;
    require(waitpid(child, &status, 0) == child, "waitpid");
    if (WIFEXITED(status) && WEXITSTATUS(status) == kGood) {
      ++good;
    } else {
      SAY(status);
    }
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  SAY(good);
  // What the children did has done nothing to the process itself.
  for (const int fd : connections) {
    SAY(send(fd, "y", 1, 0));
    char byte = 0;
    SAY(recv(fd, &byte, 1, 0));
    SAY(byte);
  }
  side.tell();
}

// Connections of a stranger that look like those of a program under leat-run, whose offer is about
// to come, but whose offer never comes. So many that a wait of seconds for each would never end.
constexpr int kStrangers = 100;

void serve_by_children(Side& side) {
  const int listener = side.listen_here(kStrangers + 10);
  int served = 0;
  for (int i = 0; i < kStrangers; ++i) {
    const int fd = accept(listener, nullptr, nullptr);
    const pid_t child = fork();
    if (child == 0) ::_exit(kGood);
    int status = 0;
    if (waitpid(child, &status, 0) == child && WEXITSTATUS(status) == kGood) ++served;
    close(fd);
  }
  SAY(served);
  const int fd = accept(listener, nullptr, nullptr);
  side.say_data("received", recv_all(side, fd, 5));
  send_text(side, fd, "welcome");
  SAY(close(fd));
}

void announce_and_be_silent(Side& side) {
  const int port = side.hear();
  // As src/preload/meeting.h has it; to others it is a size like any.
  const uid_t user = geteuid();
  const int size = 32'448 + static_cast<int>((user ^ (user >> 8)) % 256);
  std::vector<int> strangers;
  for (int i = 0; i < kStrangers; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    require(setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &size, sizeof(size)) == 0, "TCP_MAXSEG");
    require(connect_to(fd, port) == 0, "connect");
    strangers.push_back(fd);
  }
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  SAY(connect_to(fd, port));
  send_text(side, fd, "hello");
  side.say_data("received", recv_to_end(side, fd));
}

}  // namespace

Cases fork_cases() {
  return {
      {"fork.beside_threads", echo_until_told, [](Side& side) { fork_often(side, fork); }},
      {"fork.bare_beside_threads", echo_until_told, [](Side& side) { fork_often(side, _Fork); }},
      {"fork.beside_strangers", serve_by_children, announce_and_be_silent},
  };
}

}  // namespace posix_cases
