// Few descriptors, soft and hard: a server that may have N of them accepts as many connections as
// there are numbers, and the program gets every number.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "case.h"
#include "exec.h"

namespace posix_cases {
namespace {

void limit_descriptors(rlim_t most) {
  const rlimit limit{most, most};
  require(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
}

// How many descriptor numbers are still free.
int count_free() {
  std::vector<int> taken;
  for (int fd = dup(0); fd >= 0; fd = dup(0)) taken.push_back(fd);
  require(errno == EMFILE, "dup");
  for (const int fd : taken) close(fd);
  return static_cast<int>(taken.size());
}

void close_all(const std::vector<int>& descriptors) {
  for (const int fd : descriptors) close(fd);
}

// Each gets its byte back.
void echo_each(const Side& side, const std::vector<int>& connections) {
  int echoed = 0;
  for (const int fd : connections) {
    char byte = 0;
    if (recv(fd, &byte, 1, 0) == 1 && send(fd, &byte, 1, 0) == 1) ++echoed;
  }
  SAY(echoed == std::ssize(connections));
}

constexpr int kBeyond = 3;  // clients for which no number is free at first

// Accepts with few numbers, as many as clients come.
void accept_with_few(Side& side, int listener) {
  const int free = count_free();
  side.tell(free + kBeyond);
  std::vector<int> connections;
  for (int i = 0; i < free; ++i) {
    const int fd = accept(listener, nullptr, nullptr);
    if (fd < 0) {
      SAY(fd);
      break;
    }
    connections.push_back(fd);
  }
  SAY(std::ssize(connections) == free);
  wait_for(side, listener, POLLIN);
  for (int i = 0; i < 3; ++i) SAY(accept(listener, nullptr, nullptr));
  SAY(dup(0));
  SAY(socket(AF_INET, SOCK_STREAM, 0));
  echo_each(side, connections);
  // One goes, another comes.
  set_blocking(listener, false);
  for (int i = 0; i < kBeyond; ++i) {
    SAY(close(connections.front()));
    connections.erase(connections.begin());
    wait_for(side, listener, POLLIN);
    const int fd = accept(listener, nullptr, nullptr);
    SAY(fd >= 0);
    connections.push_back(fd);
    echo_each(side, {fd});
    SAY(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK));
  }
  // The client ends the others.
  side.tell();
  int ended = 0;
  for (const int fd : connections) {
    char byte = 0;
    if (recv(fd, &byte, 1, 0) == 0) ++ended;
  }
  SAY(ended == std::ssize(connections));
  close_all(connections);
  SAY(count_free() == free);
}

template <int kMost>
void accept_limited(Side& side) {
  limit_descriptors(kMost);
  accept_with_few(side, side.listen_here(300));
}

// The same in a program that has had the limit from its start.
template <int kMost>
void execute_limited(Side& side) {
  limit_descriptors(kMost);
  execl("/proc/self/exe", "posix_cases", kExecuted, kLimited, nullptr);
  side.say("not reached");
}

void connect_many(Side& side) {
  const int port = side.hear();
  const int count = side.hear();
  std::vector<int> connections;
  for (int i = 0; i < count; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    require(connect_to(fd, port) == 0, "connect");
    const char byte = static_cast<char>(i);
    require(send(fd, &byte, 1, 0) == 1, "send");
    connections.push_back(fd);
  }
  int echoed = 0;
  for (int i = 0; i < count; ++i) {
    char byte = 0;
    if (recv(connections[static_cast<std::size_t>(i)], &byte, 1, 0) == 1 &&
        byte == static_cast<char>(i))
      ++echoed;
  }
  SAY(echoed == count);
  side.hear();
  close_all(connections);
}

// Every call that makes descriptors makes as many as there are numbers.
void say_all_numbers(const Side& side) {
  const int free = count_free();
  const auto count = [&](const char* name, const auto& make, int each) {
    std::vector<int> taken;
    for (;;) {
      int made[2] = {-1, -1};
      if (!make(made)) break;
      for (int i = 0; i < each; ++i) taken.push_back(made[i]);
    }
    side.say_result(name, -1);
    side.say(std::ssize(taken) == free / each * each ? "all" : "not all");
    close_all(taken);
  };
  const auto one = [](auto call) {
    return [call](int(&made)[2]) {
      made[0] = call();
      return made[0] >= 0;
    };
  };
  count("socket", one([] { return socket(AF_INET, SOCK_STREAM, 0); }), 1);
  count("open", one([] { return open("/dev/null", O_RDONLY); }), 1);
  count("dup", one([] { return dup(0); }), 1);
  count("F_DUPFD", one([] { return fcntl(0, F_DUPFD, 0); }), 1);
  count("epoll_create1", one([] { return epoll_create1(0); }), 1);
  count(
      "pipe", [](int(&made)[2]) { return pipe(made) == 0; }, 2);
  SAY(count_free() == free);
}

template <int kMost>
void say_numbers_with_connections(Side& side) {
  const int first = side.connected();
  limit_descriptors(kMost);
  say_all_numbers(side);
  const int second = side.connected();
  say_all_numbers(side);
  for (const int fd : {first, second}) {
    side.say_data("received", recv_all(side, fd, 5));
    send_text(side, fd, "welcome");
  }
  close(first);
  say_all_numbers(side);
  side.say_data("rest", recv_to_end(side, second));
}

void greet_by_both(Side& side) {
  const int first = side.connected();
  const int second = side.connected();
  for (const int fd : {first, second}) {
    send_text(side, fd, "hello");
    side.say_data("received", recv_all(side, fd, 7));
  }
}

}  // namespace

int run_limited() {
  Side side(Role::kServer);
  accept_with_few(side, side.listen_here(300));
  return 0;
}

Cases limit_cases() {
  return {
      {"limit.accepts_20", accept_limited<20>, connect_many},
      {"limit.accepts_64", accept_limited<64>, connect_many},
      {"limit.accepts_200", accept_limited<200>, connect_many},
      {"limit.accepts_20_from_the_start", execute_limited<20>, connect_many},
      {"limit.accepts_64_from_the_start", execute_limited<64>, connect_many},
      {"limit.accepts_200_from_the_start", execute_limited<200>, connect_many},
      {"limit.numbers_20", say_numbers_with_connections<20>, greet_by_both},
      {"limit.numbers_64", say_numbers_with_connections<64>, greet_by_both},
      {"limit.numbers_200", say_numbers_with_connections<200>, greet_by_both},

      {"limit.connects",
       [](Side& side) {
         // The connecting side has few.
         const int listener = side.listen_here(64);
         const int count = side.hear();
         std::vector<int> connections;
         for (int i = 0; i < count; ++i) connections.push_back(accept(listener, nullptr, nullptr));
         echo_each(side, connections);
         side.tell();
         for (const int fd : connections) close(fd);
       },
       [](Side& side) {
         const int port = side.hear();
         limit_descriptors(40);
         const int free = count_free();
         side.tell(free);
         std::vector<int> connections;
         for (int i = 0; i < free; ++i) {
           const int fd = socket(AF_INET, SOCK_STREAM, 0);
           require(fd >= 0, "socket");
           if (connect_to(fd, port) != 0) SAY(errno);
           require(send(fd, "x", 1, 0) == 1, "send");
           connections.push_back(fd);
         }
         SAY(socket(AF_INET, SOCK_STREAM, 0));
         int echoed = 0;
         for (const int fd : connections) {
           char byte = 0;
           if (recv(fd, &byte, 1, 0) == 1) ++echoed;
         }
         SAY(echoed == free);
         side.hear();
         close_all(connections);
         SAY(count_free() == free);
       }},
  };
}

}  // namespace posix_cases
