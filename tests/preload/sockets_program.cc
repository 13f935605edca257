// A program of plain sockets that prints what it sees. leat_run_test runs it over TCP and under
// leat-run, and compares. It knows nothing of leat.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

int must(int result, const char* what) {
  if (result < 0) die(what);
  return result;
}

// Prints a result as a program sees it: the value, or errno's name.
template <typename Value>
void say(const char* what, Value result) {
  if (result < 0) {
    std::printf("%s: %s\n", what, strerrorname_np(errno));
  } else {
    std::printf("%s: %lld\n", what, static_cast<long long>(result));
  }
}

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

struct Pair {
  Listener listener;
  int client = listener.connect_one();
  int server = listener.accept_one();
};

void set_nonblocking(int fd) { must(fcntl(fd, F_SETFL, O_NONBLOCK), "fcntl"); }

void set_timeout(int fd, int option, int milliseconds) {
  const timeval time{.tv_sec = 0, .tv_usec = milliseconds * 1000};
  must(setsockopt(fd, SOL_SOCKET, option, &time, sizeof(time)), "timeout");
}

std::string receive_text(int fd, int flags = 0) {
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

// Both directions at once, two threads an end: each blocks in recv while another fills the ring.
void bulk() {
  const Pair pair;
  const std::vector<char> data = pattern(std::size_t{24} << 20);
  bool good[2] = {};
  std::vector<std::thread> threads;
  threads.emplace_back([&] { send_all(pair.client, data); });
  threads.emplace_back([&] { send_all(pair.server, data); });
  threads.emplace_back([&] { good[0] = receive_all(pair.client, data); });
  threads.emplace_back([&] { good[1] = receive_all(pair.server, data); });
  for (std::thread& thread : threads) thread.join();
  std::printf("%d %d\n", good[0], good[1]);
}

void half_close() {
  const Pair pair;
  say("send", send(pair.client, "last", 4, 0));
  say("shutdown", shutdown(pair.client, SHUT_WR));
  std::printf("%s\n", poll_text(pair.server, POLLIN | POLLRDHUP, 1000).c_str());
  std::printf("[%s]\n", receive_text(pair.server).c_str());
  std::printf("[%s]\n", receive_text(pair.server).c_str());
  say("answer", send(pair.server, "answer", 6, 0));
  std::printf("[%s]\n", receive_text(pair.client).c_str());
  say("after the end", send(pair.client, "x", 1, MSG_NOSIGNAL));
}

void closing() {
  {
    const Pair pair;
    say("send", send(pair.client, "last", 4, 0));
    close(pair.client);
    std::printf("%s\n", poll_text(pair.server, POLLIN | POLLOUT | POLLRDHUP, 1000).c_str());
    std::printf("[%s]\n", receive_text(pair.server).c_str());
    std::printf("[%s]\n", receive_text(pair.server).c_str());
    say("first", send(pair.server, "x", 1, MSG_NOSIGNAL));
    usleep(20000);
    say("second", send(pair.server, "x", 1, MSG_NOSIGNAL));
    std::printf("[%s]\n", receive_text(pair.server).c_str());
  }
  {
    const Pair pair;  // with unread bytes: reset
    say("send", send(pair.server, "unread", 6, 0));
    usleep(20000);
    close(pair.client);
    usleep(20000);
    std::printf("%s\n", poll_text(pair.server, POLLIN | POLLOUT | POLLRDHUP, 1000).c_str());
    std::printf("[%s]\n", receive_text(pair.server).c_str());
    std::printf("[%s]\n", receive_text(pair.server).c_str());
    say("send", send(pair.server, "x", 1, MSG_NOSIGNAL));
  }
  {
    const Pair pair;
    const linger abort{.l_onoff = 1, .l_linger = 0};
    must(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &abort, sizeof(abort)), "SO_LINGER");
    close(pair.client);
    usleep(20000);
    std::printf("[%s]\n", receive_text(pair.server).c_str());
  }
}

// The connecting process is killed; the other sleeps in recv.
void killed() {
  const Listener listener;
  const pid_t child = must(fork(), "fork");
  if (child == 0) {
    const int fd = listener.connect_one();
    send(fd, "alive", 5, 0);
    pause();
  }
  const int server = listener.accept_one();
  std::printf("[%s]\n", receive_text(server).c_str());
  std::thread killer([&] {
    usleep(50000);
    kill(child, SIGKILL);
  });
  std::printf("[%s]\n", receive_text(server).c_str());
  killer.join();
  waitpid(child, nullptr, 0);
}

void flags() {
  const Pair pair;
  std::printf("[%s]\n", receive_text(pair.server, MSG_DONTWAIT).c_str());
  say("send", send(pair.client, "abcdef", 6, 0));
  std::printf("[%s]\n", receive_text(pair.server, MSG_PEEK).c_str());
  int there = -1;
  must(ioctl(pair.server, FIONREAD, &there), "FIONREAD");
  std::printf("%d\n", there);
  std::thread late([&] {
    usleep(30000);
    send(pair.client, "gh", 2, 0);
  });
  char eight[9] = {};
  say("all", recv(pair.server, eight, 8, MSG_WAITALL));
  std::printf("[%s]\n", eight);
  late.join();
  set_timeout(pair.server, SO_RCVTIMEO, 50);
  std::printf("[%s]\n", receive_text(pair.server).c_str());
  set_timeout(pair.client, SO_SNDTIMEO, 50);
  const std::vector<char> much(std::size_t{64} << 20);
  const ssize_t part = send(pair.client, much.data(), much.size(), 0);
  std::printf("part %d\n", part > 0 && part < static_cast<ssize_t>(much.size()));
  while (send(pair.client, much.data(), much.size(), MSG_DONTWAIT) > 0) usleep(1000);
  say("full", send(pair.client, "x", 1, MSG_DONTWAIT));
  std::printf("%s|\n", poll_text(pair.client, POLLOUT, 0).c_str());
  int value = -1;
  socklen_t bytes = sizeof(value);
  getsockopt(pair.client, IPPROTO_TCP, TCP_NODELAY, &value, &bytes);
  std::printf("nodelay %d\n", value != 0);
}

void on_signal(int) {}

void signals() {
  const Pair pair;
  struct sigaction action {};
  action.sa_handler = on_signal;
  must(sigaction(SIGALRM, &action, nullptr), "sigaction");
  // Again and again: one that comes just before the call is no use, also over TCP.
  const auto alarm_soon = [] {
    const timeval time{.tv_sec = 0, .tv_usec = 30000};
    const itimerval soon{.it_interval = time, .it_value = time};
    setitimer(ITIMER_REAL, &soon, nullptr);
  };
  alarm_soon();
  std::printf("[%s]\n", receive_text(pair.server).c_str());
  alarm_soon();
  std::printf("[%s]\n", poll_text(pair.server, POLLIN, 5000).c_str());
  action.sa_flags = SA_RESTART;
  must(sigaction(SIGALRM, &action, nullptr), "sigaction");
  alarm_soon();
  std::thread late([&] {
    usleep(80000);
    send(pair.client, "after", 5, 0);
  });
  std::printf("[%s]\n", receive_text(pair.server).c_str());
  late.join();
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
  // The signal of a write that nobody can read.
  action.sa_handler = [](int) { std::printf("SIGPIPE\n"); };
  must(sigaction(SIGPIPE, &action, nullptr), "sigaction");
  shutdown(pair.server, SHUT_WR);
  say("write", write(pair.server, "x", 1));
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

// The connection follows dup, fork and exec.
void following(const char* self) {
  const Pair pair;
  const int copy = must(dup(pair.server), "dup");
  close(pair.server);
  say("send", send(copy, "dup ", 4, 0));
  if (must(fork(), "fork") == 0) {
    say("child", send(copy, "child ", 6, 0));
    std::fflush(stdout);
    dup2(copy, STDIN_FILENO);
    dup2(copy, STDOUT_FILENO);
    close(copy);
    execl(self, self, "executed", nullptr);
    die("exec");
  }
  close(copy);
  send(pair.client, "to the child", 12, 0);
  shutdown(pair.client, SHUT_WR);
  wait(nullptr);
  std::string all;
  for (std::string part; !(part = receive_text(pair.client)).empty();) all += part;
  std::printf("[%s]\n", all.c_str());
}

// What following() executes: copies its standard input to its standard output.
void executed() {
  char bytes[64];
  for (ssize_t got = 0; (got = read(STDIN_FILENO, bytes, sizeof(bytes))) > 0;)
    must(static_cast<int>(write(STDOUT_FILENO, bytes, static_cast<std::size_t>(got))), "write");
  std::printf(" and stdio");
}

void streams() {
  const Pair pair;
  FILE* out = fdopen(dup(pair.client), "w");
  FILE* in = fdopen(pair.server, "r");
  std::printf("%d\n", fileno(in) == pair.server);
  std::fprintf(out, "first line\nsecond line\n");
  std::fclose(out);
  dprintf(pair.client, "%d lines\n", 3);
  char line[64];
  for (int i = 0; i < 3; ++i) std::printf("%s", std::fgets(line, sizeof(line), in));
  std::fclose(in);
  usleep(20000);
  std::printf("[%s]\n", receive_text(pair.client).c_str());
}

void files() {
  const Pair pair;
  FILE* file = std::tmpfile();
  const std::vector<char> data = pattern(300000);
  std::fwrite(data.data(), 1, data.size(), file);
  std::fflush(file);
  std::thread sender([&] {
    off_t offset = 0;
    while (offset < static_cast<off_t>(data.size()))
      if (sendfile(pair.client, fileno(file), &offset, data.size()) <= 0) die("sendfile");
  });
  std::printf("%d\n", receive_all(pair.server, data));
  sender.join();
  int ends[2];
  must(pipe(ends), "pipe");
  send(pair.client, "through a pipe", 14, 0);
  usleep(20000);
  say("in", splice(pair.server, nullptr, ends[1], nullptr, 1000, 0));
  say("out", splice(ends[0], nullptr, pair.server, nullptr, 1000, 0));
  std::printf("[%s]\n", receive_text(pair.client).c_str());
}

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 20000; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

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

long resident_pages() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long all = 0;
  long resident = 0;
  if (file == nullptr || std::fscanf(file, "%ld %ld", &all, &resident) != 2) die("statm");
  std::fclose(file);
  return resident;
}

// As a client of multi-party computation that waits for its server, every millisecond for a minute.
void refused() {
  Listener listener;
  close(listener.fd);
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
}

// Everything that the debug mode can see of a connection that gets out of sight.
void escaping() {
  const Pair pair;
  std::string program = "/sbin/ldconfig";  // linked statically
  std::string option = "--version";
  std::string other = "/bin/true";
  char* arguments[] = {program.data(), option.data(), nullptr};
  char* nothing[] = {nullptr};
  pid_t child = -1;
  for (char** environment : {environ, nothing}) {
    if (posix_spawn(&child, arguments[0], nullptr, nullptr, arguments, environment) != 0)
      die("posix_spawn");
    waitpid(child, nullptr, 0);
    arguments[0] = other.data();
    arguments[1] = nullptr;
  }
  say("system", std::system("true"));
  syscall(SYS_write, pair.client, "past", 4);
  set_timeout(pair.server, SO_RCVTIMEO, 50);
  say("recv", recv(pair.server, option.data(), 1, 0));
  syscall(SYS_close, pair.client);
  say("socket again", socket(AF_INET, SOCK_STREAM, 0) == pair.client ? 1 : 0);
}

// Several processes accept from one listener; every connection is served.
void prefork() {
  const Listener listener;
  std::vector<pid_t> workers;
  for (int i = 0; i < 3; ++i) {
    workers.push_back(must(fork(), "fork"));
    if (workers.back() != 0) continue;
    for (;;) {
      const int fd = listener.accept_one();
      const std::string got = receive_text(fd);
      send(fd, got.data(), got.size(), 0);
      close(fd);
    }
  }
  int good = 0;
  for (int round = 0; round < 20; ++round) {
    std::vector<int> clients;
    for (int i = 0; i < 10; ++i) clients.push_back(listener.connect_one());
    for (const int fd : clients) send(fd, &fd, sizeof(fd), 0);
    for (const int fd : clients) {
      int back = -1;
      if (recv(fd, &back, sizeof(back), MSG_WAITALL) == sizeof(back) && back == fd) ++good;
      close(fd);
    }
  }
  for (const pid_t worker : workers) {
    kill(worker, SIGKILL);
    waitpid(worker, nullptr, 0);
  }
  std::printf("%d\n", good);
}

// Short connections, one after the other. Some are still used by a child when the next are made.
void reconnecting() {
  const Listener listener;
  std::vector<pid_t> children;
  for (int i = 0; i < 60; ++i) {
    const int client = listener.connect_one();
    const int server = listener.accept_one();
    const std::string text = "number " + std::to_string(i);
    send(client, text.data(), text.size(), 0);
    std::printf("%s, ", receive_text(server).c_str());
    std::fflush(stdout);
    const bool shared = i % 10 == 5;
    if (shared) children.push_back(fork());
    if (shared && children.back() == 0) {
      close(server);
      usleep(100000);
      const bool good = receive_text(client) == "answer " + text && receive_text(client).empty();
      _exit(good ? 0 : 1);
    }
    const std::string answer = "answer " + text;
    send(server, answer.data(), answer.size(), 0);
    close(server);
    if (shared) {
      std::printf("%s\n", poll_text(client, POLLRDHUP, 1000).c_str());
    } else {
      std::printf("%s, ", receive_text(client).c_str());
      std::printf("[%s]\n", receive_text(client).c_str());
    }
    close(client);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    std::printf("child %d\n", status);
  }
}

// Another thread ends what one sleeps in.
void waking() {
  const Pair pair;
  std::thread ender([&] {
    usleep(50000);
    shutdown(pair.server, SHUT_RDWR);
  });
  std::printf("[%s]\n", receive_text(pair.server).c_str());
  ender.join();
  std::printf("[%s]\n", receive_text(pair.client).c_str());
}

// For leat-stat to look at.
void standing() {
  const Pair pair;
  const std::vector<char> data(1000);
  send_all(pair.client, data);
  receive_all(pair.server, data);
  std::printf("standing %d\n", static_cast<int>(getpid()));
  std::fflush(stdout);
  pause();
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  const std::map<std::string, std::function<void()>> scenarios = {
      {"bulk", bulk},
      {"half_close", half_close},
      {"closing", closing},
      {"killed", killed},
      {"flags", flags},
      {"signals", signals},
      {"epoll", epoll},
      {"selecting", selecting},
      {"standing", standing},
      {"following", [&] { following(argv[0]); }},
      {"executed", executed},
      {"streams", streams},
      {"files", files},
      {"connecting", connecting},
      {"prefork", prefork},
      {"waking", waking},
      {"refused", refused},
      {"escaping", escaping},
      {"reconnecting", reconnecting},
  };
  const auto found = scenarios.find(argc > 1 ? argv[1] : "");
  if (found == scenarios.end()) {
    std::fprintf(stderr, "usage: sockets_program SCENARIO\n");
    return 2;
  }
  found->second();
  return 0;
}
