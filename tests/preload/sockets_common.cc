#include "preload/sockets_common.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace sockets {

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

int must(int result, const char* what) {
  if (result < 0) die(what);
  return result;
}

void set_nonblocking(int fd) { must(fcntl(fd, F_SETFL, O_NONBLOCK), "fcntl"); }

void set_timeout(int fd, int option, int milliseconds) {
  const timeval time{.tv_sec = 0, .tv_usec = milliseconds * 1000};
  must(setsockopt(fd, SOL_SOCKET, option, &time, sizeof(time)), "timeout");
}

std::string receive_text(int fd, int flags) {
  char bytes[4096];
  const ssize_t got = recv(fd, bytes, sizeof(bytes), flags);
  if (got < 0) return strerrorname_np(errno);
  return std::string(bytes, static_cast<std::size_t>(got));
}

std::string poll_text(int fd, short events, int timeout) {
  pollfd one{.fd = fd, .events = events};
  if (poll(&one, 1, timeout) < 0) return strerrorname_np(errno);
  std::string text;
  const std::pair<int, const char*> names[] = {{POLLIN, "IN "},
                                               {POLLOUT, "OUT "},
                                               {POLLRDHUP, "RDHUP "},
                                               {POLLHUP, "HUP "},
                                               {POLLERR, "ERR "}};
  for (const auto& [bit, name] : names)
    if ((one.revents & bit) != 0) text += name;
  return text;
}

std::vector<char> pattern(std::size_t bytes) {
  std::vector<char> data(bytes);
  unsigned state = 1;
  for (char& byte : data) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return data;
}

void send_all(int fd, const std::vector<char>& data) {
  std::size_t step = 1;
  for (std::size_t at = 0; at < data.size(); step = step * 3 % 300007 + 1) {
    const ssize_t sent = send(fd, &data[at], std::min(step, data.size() - at), 0);
    if (sent < 0) die("send");
    at += static_cast<std::size_t>(sent);
  }
}

bool receive_all(int fd, const std::vector<char>& data) {
  std::vector<char> got(data.size());
  std::size_t step = 1;
  for (std::size_t at = 0; at < data.size(); step = step * 5 % 200003 + 1) {
    const ssize_t part = recv(fd, &got[at], std::min(step, data.size() - at), 0);
    if (part <= 0) return false;
    at += static_cast<std::size_t>(part);
  }
  return got == data;
}

std::string wait_text(int epoll_fd, int timeout) {
  epoll_event events[8];
  const int count = epoll_wait(epoll_fd, events, 8, timeout);
  if (count < 0) return strerrorname_np(errno);
  std::map<std::uint64_t, std::uint32_t> sorted;
  for (int i = 0; i < count; ++i) sorted[events[i].data.u64] = events[i].events;
  std::string text;
  for (const auto& [data, mask] : sorted)
    text += std::to_string(data) + ((mask & EPOLLIN) != 0 ? "in " : "") +
            ((mask & EPOLLOUT) != 0 ? "out " : "") + ((mask & EPOLLRDHUP) != 0 ? "rdhup " : "") +
            ((mask & EPOLLHUP) != 0 ? "hup " : "");
  return "(" + text + ")";
}

void control(int epoll_fd, int operation, int fd, std::uint32_t events, std::uint64_t data) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  must(epoll_ctl(epoll_fd, operation, fd, &event), "epoll_ctl");
}

}  // namespace sockets
