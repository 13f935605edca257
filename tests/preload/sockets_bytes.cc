// Bytes both ways, and how a connection ends.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <thread>
#include <vector>

#include "preload/sockets_common.h"
#include "preload/sockets_scenarios.h"

namespace sockets {
namespace {

void on_signal(int) {}

}  // namespace

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

void signals() {
  const Pair pair;
  struct sigaction action {};
  action.sa_handler = on_signal;
  must(sigaction(SIGALRM, &action, nullptr), "sigaction");
  // Again and again: one that comes just before the call does not end it, also over TCP.
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
  // The signal of a write after shutdown().
  action.sa_handler = [](int) { std::printf("SIGPIPE\n"); };
  must(sigaction(SIGPIPE, &action, nullptr), "sigaction");
  shutdown(pair.server, SHUT_WR);
  say("write", write(pair.server, "x", 1));
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

}  // namespace sockets
