// Several processes with the same connections.
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "preload/sockets_common.h"
#include "preload/sockets_scenarios.h"

namespace sockets {

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

// Runs a program that inherits what there is, in a child, and says how it ended.
void run(std::vector<std::string> words, char* const* environment,
         const posix_spawn_file_actions_t* actions = nullptr) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = -1;
  if (posix_spawn(&child, arguments[0], actions, nullptr, arguments.data(), environment) != 0)
    die("posix_spawn");
  int status = -1;
  waitpid(child, &status, 0);
  say(words[0].c_str(), WEXITSTATUS(status));
  std::fflush(stdout);
}

// Programs that do not load what leat-run loads do not find a connection that hangs, but none.
void refusing() {
  const Pair pair;
  const std::string to_nowhere = " 2>/dev/null";
  const std::string number = std::to_string(pair.client);
  char* nothing[] = {nullptr};
  // The child's standard input, a carried connection, is unusable but keeps its number, however the
  // child is started.
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pair.server, 0);
  run({"/bin/sh", "-c", "test -e /proc/self/fd/0"}, nothing, &actions);
  run({"/bin/sh", "-c", "cat" + to_nowhere}, nothing, &actions);
  posix_spawn_file_actions_destroy(&actions);
  if (must(fork(), "fork") == 0) {
    dup2(pair.server, 0);
    execle("/bin/sh", "sh", "-c", ("cat" + to_nowhere).c_str(), nullptr, nothing);
    die("exec");
  }
  int status = -1;
  wait(&status);
  say("executed", WEXITSTATUS(status));
  // Others are closed.
  run({"/bin/sh", "-c", "true 2>/dev/null <&" + number}, nothing);
  // What stands in the first line of a script is what runs.
  char script[] = "/tmp/sockets_program.XXXXXX";
  const int file = must(mkstemp(script), "mkstemp");
  constexpr char kText[] = "#! /sbin/ldconfig --version\n";
  if (write(file, kText, sizeof(kText) - 1) != sizeof(kText) - 1) die("write");
  must(fchmod(file, 0700), "fchmod");
  close(file);
  if (must(fork(), "fork") == 0) {
    if (std::freopen("/dev/null", "w", stdout) == nullptr) die("freopen");
    execl(script, "script", nullptr);
    die("exec");
  }
  wait(&status);
  say("script", WEXITSTATUS(status));
  unlink(script);
  // The log says nothing about descriptors that the child would not have got anyway.
  for (const int fd : {pair.client, pair.server, pair.listener.fd})
    must(fcntl(fd, F_SETFD, FD_CLOEXEC), "fcntl");
  run({"/bin/true"}, nothing);
  send(pair.client, "still there", 11, 0);
  std::printf("[%s]\n", receive_text(pair.server).c_str());
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

// The same of a connection that a child uses, as PostgreSQL's do.
void standing_child() {
  const Pair pair;
  const std::vector<char> data(1000);
  send_all(pair.client, data);
  const pid_t child = must(fork(), "fork");
  if (child == 0) {
    receive_all(pair.server, data);
    std::printf("standing %d\n", static_cast<int>(getpid()));
    std::fflush(stdout);
    pause();
  }
  close(pair.server);
  waitpid(child, nullptr, 0);
}

// A child that ends interrupts no call if the program does not handle SIGCHLD.
void children() {
  const Pair pair;
  const auto with_child = [&](const std::function<void()>& wait) {
    const pid_t child = must(fork(), "fork");
    if (child == 0) {
      usleep(50000);
      _exit(0);
    }
    wait();
    waitpid(child, nullptr, 0);
  };
  set_timeout(pair.server, SO_RCVTIMEO, 300);
  with_child([&] { std::printf("[%s]\n", receive_text(pair.server).c_str()); });
  with_child([&] { std::printf("[%s]\n", poll_text(pair.server, POLLIN, 300).c_str()); });
  const int set = must(epoll_create1(0), "epoll_create1");
  control(set, EPOLL_CTL_ADD, pair.server, EPOLLIN, 1);
  epoll_event event{};
  with_child([&] { say("epoll_wait", epoll_wait(set, &event, 1, 300)); });
}

}  // namespace sockets
