// poll, select and epoll.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "preload/sockets_common.h"
#include "preload/sockets_scenarios.h"

namespace sockets {

void epoll() {
  const Pair one;
  const Pair two;
  const int set = must(epoll_create1(0), "epoll_create1");
  control(set, EPOLL_CTL_ADD, one.server, EPOLLIN, 1);
  control(set, EPOLL_CTL_ADD, two.server, EPOLLIN | EPOLLET, 2);
  std::printf("%s\n", wait_text(set, 0).c_str());
  send(one.client, "x", 1, 0);
  send(two.client, "x", 1, 0);
  usleep(20000);
  std::printf("both %s\n", wait_text(set, 1000).c_str());
  std::printf("level again %s\n", wait_text(set, 50).c_str());
  send(two.client, "y", 1, 0);
  usleep(20000);
  std::printf("new edge %s\n", wait_text(set, 1000).c_str());
  receive_text(one.server);
  receive_text(two.server);
  std::printf("nothing %s\n", wait_text(set, 20).c_str());
  // Asleep when it comes, with a timer and a pipe in the set too.
  const int timer = must(timerfd_create(CLOCK_MONOTONIC, 0), "timerfd_create");
  control(set, EPOLL_CTL_ADD, timer, EPOLLIN, 3);
  for (const Pair* pair : {&one, &two}) {
    std::thread late([&] {
      usleep(50000);
      send(pair->client, "z", 1, 0);
    });
    std::printf("asleep %s\n", wait_text(set, 5000).c_str());
    late.join();
    receive_text(pair->server);
  }
  const itimerspec soon{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = 30'000'000}};
  must(timerfd_settime(timer, 0, &soon, nullptr), "timerfd_settime");
  std::printf("timer %s\n", wait_text(set, 5000).c_str());
  control(set, EPOLL_CTL_DEL, timer, 0, 0);
  control(set, EPOLL_CTL_MOD, one.server, EPOLLIN | EPOLLOUT | EPOLLONESHOT, 4);
  std::printf("out %s\n", wait_text(set, 1000).c_str());
  std::printf("fired %s\n", wait_text(set, 20).c_str());
  control(set, EPOLL_CTL_MOD, one.server, EPOLLIN | EPOLLRDHUP, 5);
  const int outer = must(epoll_create1(0), "epoll_create1");
  control(outer, EPOLL_CTL_ADD, set, EPOLLIN, 6);
  std::printf("outer %s\n", wait_text(outer, 20).c_str());
  std::thread late([&] {
    usleep(50000);
    shutdown(one.client, SHUT_WR);
  });
  std::printf("outer %s\n", wait_text(outer, 5000).c_str());
  late.join();
  std::printf("inner %s\n", wait_text(set, 1000).c_str());
  close(two.client);
  usleep(20000);
  std::printf("closed %s\n", wait_text(set, 1000).c_str());
}

void selecting() {
  const Pair pair;
  fd_set reads;
  fd_set writes;
  const auto run = [&](int milliseconds) {
    FD_ZERO(&reads);
    FD_ZERO(&writes);
    FD_SET(pair.server, &reads);
    FD_SET(pair.client, &writes);
    timeval time{.tv_sec = 0, .tv_usec = milliseconds * 1000};
    const int ready =
        select(std::max(pair.server, pair.client) + 1, &reads, &writes, nullptr, &time);
    std::printf("%d %d %d\n", ready, FD_ISSET(pair.server, &reads), FD_ISSET(pair.client, &writes));
  };
  run(10);
  send(pair.client, "x", 1, 0);
  usleep(20000);
  run(10);
  std::printf("[%s]\n", poll_text(pair.client, POLLIN, 20).c_str());
  std::thread late([&] {
    usleep(50000);
    send(pair.server, "y", 1, 0);
  });
  std::printf("[%s]\n", poll_text(pair.client, POLLIN, 5000).c_str());
  late.join();
}

}  // namespace sockets
