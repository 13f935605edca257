#include "case.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <thread>
#include <utility>

namespace posix_cases {
namespace {

std::uint64_t digest(const unsigned char* data, std::size_t bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ data[i]) * 0x100000001b3;
  return hash;
}

template <typename Name>
std::string join_names(unsigned bits, const Name* names, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    if ((bits & names[i].first) == 0) continue;
    if (!text.empty()) text += "|";
    text += names[i].second;
  }
  return text.empty() ? "0" : text;
}

}  // namespace

void Side::say(const std::string& line) const {
  const int kept = errno;
  const std::string whole = line + "\n";
  if (::write(kTranscript, whole.data(), whole.size()) != std::ssize(whole)) ::_exit(99);
  errno = kept;
}

long Side::say_result(const char* call, long result) const {
  const int error = errno;
  const char* name = error == 0 ? "without errno" : ::strerrorname_np(error);
  say(std::string(call) + " = " + std::to_string(result) +
      (result == -1 ? std::string(" ") + name : ""));
  errno = error;
  return result;
}

void Side::say_data(const std::string& name, const void* data, std::size_t bytes) const {
  char text[64];
  std::snprintf(text, sizeof(text), ": %zu bytes, %016" PRIx64, bytes,
                digest(static_cast<const unsigned char*>(data), bytes));
  say(name + text);
}

void Side::say_data(const std::string& name, const Bytes& data) const {
  say_data(name, data.data(), data.size());
}

void Side::tell(int value) const {
  require(::write(kTell, &value, sizeof(value)) == sizeof(value), "tell");
}

int Side::hear() const {
  int value = -1;
  ssize_t got = -1;
  do {
    got = ::read(kHear, &value, sizeof(value));
  } while (got == -1 && errno == EINTR);
  require(got == sizeof(value), "hear");
  return value;
}

int Side::listen_here(int backlog) const {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  require(listener >= 0, "socket");
  sockaddr_in address = meeting_place(0);
  socklen_t length = sizeof(address);
  require(::bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0, "bind");
  require(::listen(listener, backlog) == 0, "listen");
  require(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0,
          "getsockname");
  tell(ntohs(address.sin_port));
  return listener;
}

int Side::connect_there() const {
  const int port = hear();
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  require(fd >= 0, "socket");
  require(connect_to(fd, port) == 0, "connect");
  return fd;
}

int Side::connected() const {
  if (role_ == Role::kClient) {
    const int client = connect_there();
    tell();
    return client;
  }
  const int listener = listen_here();
  const int fd = ::accept(listener, nullptr, nullptr);
  require(fd >= 0, "accept");
  hear();
  require(::close(listener) == 0, "close");
  return fd;
}

void require(bool good, const char* what) {
  if (good) return;
  const int error = errno;
  Side(Role::kServer)
      .say(std::string(what) +
           " failed: " + std::strerror(error));  // NOLINT(concurrency-mt-unsafe)
  ::_exit(98);
}

Bytes pattern(std::size_t bytes, unsigned seed) {
  Bytes data(bytes);
  std::uint32_t state = seed * 2654435761U + 1;
  for (unsigned char& byte : data) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<unsigned char>(state >> 24);
  }
  return data;
}

void send_all(const Side& side, int fd, const Bytes& data) {
  std::size_t sent = 0;
  while (sent < data.size()) {
    const ssize_t now = ::send(fd, data.data() + sent, data.size() - sent, 0);
    if (now <= 0) {
      side.say_result("send_all: send", now);
      return;
    }
    sent += static_cast<std::size_t>(now);
  }
}

void send_text(const Side& side, int fd, const std::string& text) {
  send_all(side, fd, Bytes(text.begin(), text.end()));
}

Bytes recv_all(const Side& side, int fd, std::size_t bytes) {
  Bytes data(bytes);
  std::size_t got = 0;
  while (got < bytes) {
    const ssize_t now = ::recv(fd, data.data() + got, bytes - got, 0);
    if (now <= 0) {
      side.say_result("recv_all: recv", now);
      break;
    }
    got += static_cast<std::size_t>(now);
  }
  data.resize(got);
  return data;
}

Bytes recv_to_end(const Side& side, int fd) {
  Bytes data;
  Bytes part(1 << 18);
  while (true) {
    const ssize_t now = ::recv(fd, part.data(), part.size(), 0);
    if (now <= 0) {
      side.say_result("recv at the end", now);
      return data;
    }
    data.insert(data.end(), part.begin(), part.begin() + now);
  }
}

std::size_t fill(const Side& side, int fd) {
  const Bytes data = pattern(1 << 16);
  std::size_t sent = 0;
  // What the peer's kernel takes over makes room again, also when it answers the probe of a window
  // that was closed, after 200 ms.
  constexpr int kQuiet = 20;
  for (int quiet = 0; quiet < kQuiet;) {
    const ssize_t now = ::send(fd, data.data() + sent % data.size(),
                               data.size() - sent % data.size(), MSG_DONTWAIT);
    if (now > 0) {
      sent += static_cast<std::size_t>(now);
      quiet = 0;
    } else if (now == -1 && errno == EAGAIN) {
      // Full when it returns: not after another sleep.
      if (++quiet < kQuiet) sleep_ms(15);
    } else {
      side.say_result("fill: send", now);
      return sent;
    }
  }
  return sent;
}

void wait_asleep(const std::atomic<int>& thread) {
  // Twice, because it may have slept for another reason.
  for (int asleep = 0; asleep < 2;) {
    sleep_ms(10);
    if (thread == 0) continue;
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string text;
    std::getline(file, text);
    const std::size_t end = text.rfind(')');
    const bool sleeps = end != std::string::npos && end + 2 < text.size() && text[end + 2] == 'S';
    asleep = sleeps ? asleep + 1 : 0;
  }
}

long until_failure(const std::function<long()>& call) {
  long result = 0;
  while (result != -1) result = call();
  return result;
}

void wait_for(const Side& side, int fd, short events) {
  pollfd polled{fd, events, 0};
  for (int waited = 0; waited < kPatienceMs; waited += 5) {
    if (::poll(&polled, 1, 5) < 0 && errno != EINTR) side.say("wait_for: poll failed");
    // Errors and hang-ups end a poll, whether asked for or not.
    if ((polled.revents & events) != 0) return;
    if (polled.revents != 0) sleep_ms(5);
  }
  side.say("never had " + poll_names(events) + ", but " + poll_names(polled.revents));
}

void wait_bytes(const Side& side, int fd, int bytes) {
  int readable = 0;
  for (int waited = 0; waited < kPatienceMs; waited += 1) {
    require(::ioctl(fd, FIONREAD, &readable) == 0, "ioctl(FIONREAD)");
    if (readable >= bytes) return;
    sleep_ms(1);
  }
  side.say("never had " + std::to_string(bytes) + " bytes, but " + std::to_string(readable));
}

std::string poll_names(short events) {
  static constexpr std::pair<unsigned, const char*> kNames[] = {
      {POLLIN, "POLLIN"},   {POLLPRI, "POLLPRI"},   {POLLOUT, "POLLOUT"},    {POLLERR, "POLLERR"},
      {POLLHUP, "POLLHUP"}, {POLLNVAL, "POLLNVAL"}, {POLLRDHUP, "POLLRDHUP"}};
  return join_names(static_cast<unsigned short>(events), kNames, std::size(kNames));
}

std::string epoll_names(unsigned events) {
  static constexpr std::pair<unsigned, const char*> kNames[] = {
      {EPOLLIN, "EPOLLIN"},   {EPOLLPRI, "EPOLLPRI"}, {EPOLLOUT, "EPOLLOUT"},
      {EPOLLERR, "EPOLLERR"}, {EPOLLHUP, "EPOLLHUP"}, {EPOLLRDHUP, "EPOLLRDHUP"}};
  return join_names(events, kNames, std::size(kNames));
}

void say_poll(const Side& side, int fd) {
  pollfd polled{fd, POLLIN | POLLPRI | POLLOUT | POLLRDHUP, 0};
  SAY(::poll(&polled, 1, 0));
  side.say(poll_names(polled.revents));
}

void say_socket_error(const Side& side, int fd) {
  int error = -1;
  socklen_t length = sizeof(error);
  SAY(::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
  side.say(std::string("SO_ERROR ") + (error == 0 ? "0" : ::strerrorname_np(error)));
}

const char* host() {
  const char* text = std::getenv(kHostVariable);  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? "127.0.0.1" : text;
}

sockaddr_in meeting_place(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  require(::inet_pton(AF_INET, host(), &address.sin_addr) == 1, "inet_pton");
  return address;
}

int connect_to(int fd, int port) {
  const sockaddr_in address = meeting_place(port);
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

void sleep_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

bool lasted_ms(int milliseconds, const std::function<void()>& call) {
  const auto now_ns = [](clockid_t clock) {
    timespec now{};
    ::clock_gettime(clock, &now);
    return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
  };
  // The kernel's timeouts count ticks, which on a busy virtual machine come late and many at once;
  // the coarse clock goes with them.
  const auto start = now_ns(CLOCK_MONOTONIC);
  const auto coarse_start = now_ns(CLOCK_MONOTONIC_COARSE);
  call();
  const int kept = errno;
  const auto took =
      std::max(now_ns(CLOCK_MONOTONIC) - start, now_ns(CLOCK_MONOTONIC_COARSE) - coarse_start);
  errno = kept;
  return took > milliseconds * 800'000LL;
}

void set_blocking(int fd, bool blocking) {
  const int flags = ::fcntl(fd, F_GETFL);
  require(flags >= 0, "fcntl(F_GETFL)");
  require(::fcntl(fd, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK) == 0,
          "fcntl(F_SETFL)");
}

}  // namespace posix_cases
