// Too few descriptors, and things done very often.
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "case.h"

namespace posix_cases {
namespace {

int open_descriptors() {
  DIR* folder = opendir("/proc/self/fd");
  require(folder != nullptr, "opendir");
  int count = 0;
  while (readdir(folder) != nullptr) ++count;  // NOLINT(concurrency-mt-unsafe)
  closedir(folder);
  return count;
}

// Copies descriptor 0 until no number is left.
std::vector<int> take_all_descriptors() {
  rlimit limit{};
  require(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
  limit.rlim_cur = 800;
  require(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
  std::vector<int> taken;
  for (int fd = dup(0); fd >= 0; fd = dup(0)) taken.push_back(fd);
  require(errno == EMFILE, "dup");
  return taken;
}

int set_nonblocking(int fd) { return fcntl(fd, F_SETFL, O_NONBLOCK); }

void close_all(const std::vector<int>& descriptors) {
  for (const int fd : descriptors) close(fd);
}

}  // namespace

Cases exhaustion_cases() {
  return {
      {"exhaustion.socket",
       [](Side& side) {
         const std::vector<int> taken = take_all_descriptors();
         SAY(socket(AF_INET, SOCK_STREAM, 0));
         SAY(dup(0));
         close_all(taken);
         const int fd = side.connected();
         side.say_data("received", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "hello");
       }},

      {"exhaustion.accept",
       [](Side& side) {
         const int listener = side.listen_here();
         std::vector<int> taken = take_all_descriptors();
         side.tell();
         wait_for(side, listener, POLLIN);
         SAY(accept(listener, nullptr, nullptr));
         SAY(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK));
         // One is enough for a connection.
         SAY(close(taken.back()));
         taken.pop_back();
         const int fd = accept(listener, nullptr, nullptr);
         SAY(fd >= 0);
         side.say_data("received", recv_all(side, fd, 5));
         SAY(send(fd, "welcome", 7, 0));
         side.say_data("received", recv_to_end(side, fd));
         close_all(taken);
       },
       [](Side& side) {
         const int port = side.hear();
         side.hear();
         const int fd = socket(AF_INET, SOCK_STREAM, 0);
         SAY(connect_to(fd, port));
         send_text(side, fd, "hello");
         side.say_data("received", recv_all(side, fd, 7));
       }},

      {"exhaustion.connect",
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_all(side, fd, 5));
         SAY(send(fd, "welcome", 7, 0));
       },
       [](Side& side) {
         const int port = side.hear();
         const int fd = socket(AF_INET, SOCK_STREAM, 0);
         const std::vector<int> taken = take_all_descriptors();
         SAY(connect_to(fd, port));
         side.tell();
         SAY(send(fd, "hello", 5, 0));
         side.say_data("received", recv_all(side, fd, 7));
         close_all(taken);
       }},

      {"exhaustion.every_call",
       [](Side& side) {
         const int fd = side.connected();
         const int listener = socket(AF_INET, SOCK_STREAM, 0);
         const int events = epoll_create1(0);
         const std::vector<int> taken = take_all_descriptors();
         // Those that make a descriptor.
         SAY(socket(AF_INET, SOCK_STREAM, 0));
         SAY(dup(fd));
         SAY(fcntl(fd, F_DUPFD, 0));
         SAY(fcntl(fd, F_DUPFD_CLOEXEC, 10));
         SAY(epoll_create1(0));
         SAY(dup2(fd, 1000));
         SAY(accept(listener, nullptr, nullptr));
         // And those that make none.
         SAY(listen(listener, 5));
         SAY(set_nonblocking(listener));
         SAY(accept(listener, nullptr, nullptr));
         side.say_data("received", recv_all(side, fd, 5));
         epoll_event event{};
         event.events = EPOLLOUT;
         SAY(epoll_ctl(events, EPOLL_CTL_ADD, fd, &event));
         SAY(epoll_wait(events, &event, 1, 2000));
         say_poll(side, fd);
         SAY(dup2(fd, taken[3]));
         SAY(send(taken[3], "copy", 4, 0));
         SAY(close(fd));
         const pid_t child = fork();
         if (child == 0) _exit(send(taken[3], "child", 5, 0) == 5 ? 0 : 1);
         int status = -1;
         waitpid(child, &status, 0);
         SAY(status);
         FILE* stream = fdopen(taken[3], "r+");
         SAY(stream != nullptr);
         SAY(fputs("stream", stream) >= 0);
         SAY(fclose(stream));
       },
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "hello");
         side.say_data("received", recv_to_end(side, fd));
       }},

      {"exhaustion.refused",
       [](Side& side) {
         const int listener = side.listen_here();
         sockaddr_in address{};
         socklen_t bytes = sizeof(address);
         getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes);
         SAY(close(listener));
         // Bound, it keeps others of this host from listening there meanwhile.
         const int keeper = socket(AF_INET, SOCK_STREAM, 0);
         require(bind(keeper, reinterpret_cast<sockaddr*>(&address), bytes) == 0, "bind");
         side.tell();
         side.hear();
       },
       [](Side& side) {
         const int port = side.hear();
         side.hear();
         int other_answers = 0;
         const auto attempt = [&] {
           const int fd = socket(AF_INET, SOCK_STREAM, 0);
           const int result = connect_to(fd, port);
           if (result != -1 || errno != ECONNREFUSED) ++other_answers;
           close(fd);
         };
         attempt();
         const int before = open_descriptors();
         // An MPC client that waits for its server: 3,000 of the 60,000 that it may take.
         for (int i = 0; i < 3000; ++i) attempt();
         SAY(open_descriptors() - before);
         SAY(other_answers);
         side.tell();
       }},

      {"exhaustion.connections",
       [](Side& side) {
         const int listener = side.listen_here();
         int before = 0;
         for (int i = 0; i < 200; ++i) {
           const int fd = accept(listener, nullptr, nullptr);
           char byte = 0;
           if (recv(fd, &byte, 1, 0) != 1 || byte != static_cast<char>(i)) side.say("wrong byte");
           if (recv(fd, &byte, 1, 0) != 0) side.say("no end");
           close(fd);
           if (i == 20) before = open_descriptors();
         }
         SAY(open_descriptors() - before);
       },
       [](Side& side) {
         const int port = side.hear();
         for (int i = 0; i < 200; ++i) {
           const int fd = socket(AF_INET, SOCK_STREAM, 0);
           require(connect_to(fd, port) == 0, "connect");
           const char byte = static_cast<char>(i);
           require(send(fd, &byte, 1, 0) == 1, "send");
           shutdown(fd, SHUT_WR);
           // Not faster than the other side accepts.
           char end = 0;
           if (recv(fd, &end, 1, 0) != 0) side.say("no end");
           close(fd);
         }
       }},

      {"exhaustion.many_at_once",
       [](Side& side) {
         const int listener = side.listen_here(128);
         std::vector<int> connections;
         for (int i = 0; i < 60; ++i) {
           const int fd = accept(listener, nullptr, nullptr);
           require(fd >= 0, "accept");
           connections.push_back(fd);
         }
         for (const int fd : connections) send_all(side, fd, recv_all(side, fd, 1000));
         for (const int fd : connections) side.say_data("rest", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int port = side.hear();
         std::vector<int> connections;
         for (unsigned i = 0; i < 60; ++i) {
           const int fd = socket(AF_INET, SOCK_STREAM, 0);
           require(connect_to(fd, port) == 0, "connect");
           connections.push_back(fd);
           send_all(side, fd, pattern(1000, i));
         }
         for (const int fd : connections) side.say_data("echoed", recv_all(side, fd, 1000));
       }},
  };
}

}  // namespace posix_cases
