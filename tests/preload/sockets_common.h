// What the scenarios of sockets_program share.
#pragma once

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace sockets {

// Ends the program with errno's text.
[[noreturn]] void die(const char* what);
// The result, unless it is negative: then die().
int must(int result, const char* what);

// Prints a result as a program sees it: the value, or errno's name.
template <typename Value>
void say(const char* what, Value result) {
  if (result < 0) {
    std::printf("%s: %s\n", what, strerrorname_np(errno));
  } else {
    std::printf("%s: %lld\n", what, static_cast<long long>(result));
  }
}

// At a port of loopback that the system chooses.
struct Listener {
  int fd = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
  sockaddr_in address{};

  Listener() {
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    must(bind(fd, reinterpret_cast<sockaddr*>(&address), bytes), "bind");
    must(listen(fd, 64), "listen");
    must(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes), "getsockname");
  }
  int connect_one() const {
    const int client = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
    must(connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), "connect");
    return client;
  }
  int accept_one() const { return must(accept(fd, nullptr, nullptr), "accept"); }
};

// A connection, both ends here.
struct Pair {
  Listener listener;
  int client = listener.connect_one();
  int server = listener.accept_one();
};

void set_nonblocking(int fd);
void set_timeout(int fd, int option, int milliseconds);

// What one recv() brings, or errno's name.
std::string receive_text(int fd, int flags = 0);
// What poll() and epoll_wait() say, in words, or errno's name.
std::string poll_text(int fd, short events, int timeout);
std::string wait_text(int epoll_fd, int timeout);

std::vector<char> pattern(std::size_t bytes);
// In parts of many sizes. The latter says whether all came, and as it was sent.
void send_all(int fd, const std::vector<char>& data);
bool receive_all(int fd, const std::vector<char>& data);

void control(int epoll_fd, int operation, int fd, std::uint32_t events, std::uint64_t data);

}  // namespace sockets
