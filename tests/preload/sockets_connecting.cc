// Connecting, in vain too.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>

#include "preload/sockets_common.h"
#include "preload/sockets_scenarios.h"

namespace sockets {
namespace {

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 20000; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

long resident_pages() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long all = 0;
  long resident = 0;
  if (file == nullptr || std::fscanf(file, "%ld %ld", &all, &resident) != 2) die("statm");
  std::fclose(file);
  return resident;
}

}  // namespace

void connecting() {
  Listener listener;
  const int client = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
  set_nonblocking(client);
  const int set = must(epoll_create1(0), "epoll_create1");
  control(set, EPOLL_CTL_ADD, client, EPOLLOUT | EPOLLIN, 1);
  say("connect",
      connect(client, reinterpret_cast<sockaddr*>(&listener.address), sizeof(listener.address)));
  std::printf("%s\n", wait_text(set, 1000).c_str());
  int error = -1;
  socklen_t bytes = sizeof(error);
  getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &bytes);
  std::printf("SO_ERROR %d\n", error);
  // Sent, and even closed, before anybody accepts.
  say("send", send(client, "early", 5, 0));
  close(client);
  const int server = listener.accept_one();
  std::printf("[%s]\n", receive_text(server).c_str());
  std::printf("[%s]\n", receive_text(server).c_str());
}

// As a client of multi-party computation that waits for its server, every millisecond for a minute.
void refused() {
  Listener listener;
  close(listener.fd);
  // A socket that is bound and does not listen: it refuses, and keeps the port from other programs.
  const int holder = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
  must(bind(holder, reinterpret_cast<sockaddr*>(&listener.address), sizeof(listener.address)),
       "bind");
  const auto attempt = [&] {
    const int fd = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
    const int result =
        connect(fd, reinterpret_cast<sockaddr*>(&listener.address), sizeof(listener.address));
    const bool good = result < 0 && errno == ECONNREFUSED;
    close(fd);
    return good ? 1 : 0;
  };
  int count = attempt();
  const int descriptors = open_descriptors();
  const long pages = resident_pages();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 1; i < 60000; ++i) count += attempt();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  std::fprintf(stderr, "%.1f us each\n", took.count() / 60000);
  std::printf("refused %d, leaked %d descriptors, %ld MiB\n", count,
              open_descriptors() - descriptors,
              (resident_pages() - pages) * sysconf(_SC_PAGESIZE) >> 20);
  close(holder);
}

// A socket that could not go to one place, which is carried, then goes to another, which is not.
void elsewhere() {
  const int listener = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t bytes = sizeof(address);
  must(bind(listener, reinterpret_cast<sockaddr*>(&address), bytes), "bind");
  must(listen(listener, 5), "listen");
  must(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes), "getsockname");
  const int client = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
  sockaddr_in group = address;
  group.sin_addr.s_addr = htonl(INADDR_ALLHOSTS_GROUP);
  say("connect", connect(client, reinterpret_cast<const sockaddr*>(&group), sizeof(group)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  say("connect", connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)));
  const int server = must(accept(listener, nullptr, nullptr), "accept");
  set_timeout(server, SO_RCVTIMEO, 900);
  say("send", send(client, "hello", 5, 0));
  std::printf("[%s]\n", receive_text(server).c_str());
}

}  // namespace sockets
