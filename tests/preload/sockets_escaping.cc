// What gets out of sight: calls past the C library's.
#include <dlfcn.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>

#include "preload/sockets_common.h"
#include "preload/sockets_scenarios.h"

namespace sockets {
namespace {

constexpr int kPatienceMs = 60'000;

char set_aside[64];

// The C library's own, whatever stands in front of it.
template <typename Function>
Function* function_of_libc(const char* name) {
  void* library = dlopen("libc.so.6", RTLD_NOW);
  return reinterpret_cast<Function*>(library != nullptr ? dlsym(library, name) : nullptr);
}

void write_past(int fd) { function_of_libc<decltype(write)>("write")(fd, "past", 4); }

// Receives until there is an end or an error, and prints that.
void say_end_of(const char* way, int fd, int flags = 0) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(kPatienceMs);
  char bytes[16];
  ssize_t got = 0;
  do {
    got = recv(fd, bytes, sizeof(bytes), flags);
  } while ((got > 0 || (got < 0 && errno == EAGAIN)) && Clock::now() < deadline);
  say(way, got);
  say("then", recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT));
}

void wait_by_epoll(int fd, std::uint32_t edge) {
  const int set = must(epoll_create1(0), "epoll_create1");
  control(set, EPOLL_CTL_ADD, fd, EPOLLIN | edge, 1);
  std::printf("%s\n", wait_text(set, kPatienceMs).c_str());
  close(set);
}

void send_until_failure(const char* way, int fd, int flags) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(kPatienceMs);
  static char bytes[1 << 16];
  ssize_t sent = 0;
  do {
    sent = send(fd, bytes, sizeof(bytes), flags);
  } while ((sent > 0 || errno == EAGAIN) && Clock::now() < deadline);
  say(way, sent);
}

}  // namespace

void escaping() {
  const Pair pair;
  char byte = 0;
  write_past(pair.client);
  say("recv", recv(pair.server, &byte, 1, 0));
  function_of_libc<decltype(close)>("close")(pair.client);
  say("socket again", socket(AF_INET, SOCK_STREAM, 0) == pair.client ? 1 : 0);
}

// What a peer wrote past the C library is lost, and the connection with it, however its end looks.
void writing_past() {
  {
    const Pair pair;
    write_past(pair.client);
    say_end_of("recv", pair.server);
    close(pair.server);
    say_end_of("the peer", pair.client);
  }
  {
    const Pair pair;
    write_past(pair.client);
    say_end_of("recv without blocking", pair.server, MSG_DONTWAIT);
  }
  {
    const Pair pair;
    write_past(pair.client);
    std::printf("%s\n", poll_text(pair.server, POLLIN, kPatienceMs).c_str());
    say_end_of("poll", pair.server);
  }
  for (const std::uint32_t edge : {0U, static_cast<std::uint32_t>(EPOLLET)}) {
    const Pair pair;
    write_past(pair.client);
    wait_by_epoll(pair.server, edge);
    say_end_of("epoll", pair.server);
  }
  {
    const Pair pair;
    send(pair.client, "before", 6, 0);
    write_past(pair.client);
    send(pair.client, "after", 5, 0);
    say_end_of("between", pair.server);
  }
  {
    const Pair pair;
    send(pair.client, "before", 6, 0);
    write_past(pair.client);
    shutdown(pair.client, SHUT_WR);
    say_end_of("before the end", pair.server);
  }
  {
    const Pair pair;
    write_past(pair.client);
    close(pair.client);
    say_end_of("before the close", pair.server);
  }
  {
    const Pair pair;
    write_past(pair.client);
    send_until_failure("send", pair.server, 0);
  }
  {
    const Pair pair;
    write_past(pair.client);
    send_until_failure("send without blocking", pair.server, MSG_DONTWAIT);
  }
}

// A stranger connects, says that it will offer memory, and offers none. Others are served
// meanwhile.
void minding_strangers() {
  const Listener listener;
  std::printf("port %d.\n", ntohs(listener.address.sin_port));
  std::fflush(stdout);
  const int stranger = listener.accept_one();
  const int set = must(epoll_create1(0), "epoll_create1");
  control(set, EPOLL_CTL_ADD, stranger, EPOLLIN, 1);
  for (int i = 0; i < 10; ++i) {
    const int client = listener.connect_one();
    const int server = listener.accept_one();
    control(set, EPOLL_CTL_ADD, server, EPOLLIN, 2);
    send(client, "hello", 5, 0);
    std::string events;
    while ((events = wait_text(set, kPatienceMs)).find('2') == std::string::npos) {
    }
    std::printf("served %s\n", receive_text(server).c_str());
    close(server);
    close(client);
  }
  std::printf("the stranger %s\n", wait_text(set, kPatienceMs).c_str());
  say("recv", recv(stranger, set_aside, sizeof(set_aside), MSG_DONTWAIT));
}

}  // namespace sockets
