// The descriptors that children find open: only the program's own.
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "case.h"
#include "exec.h"

namespace posix_cases {
namespace {

constexpr char kSelf[] = "/proc/self/exe";

// "socket:[1234]" is "socket", "/tmp/one" a file: the suite's own are named otherwise in each run.
std::string kind_of(const std::string& link) {
  if (link.starts_with("/") && !link.starts_with("/memfd:")) return "file";
  const std::size_t end = link.find(":[");
  return end == std::string::npos ? link : link.substr(0, end);
}

void say_end(const Side& side, pid_t child) {
  int status = -1;
  require(waitpid(child, &status, 0) == child, "waitpid");
  SAY(status);
}

// How a child becomes one that lists its descriptors.
using Start = pid_t (*)(char* const* arguments, char* const* environment);

pid_t by_spawn(char* const* arguments, char* const* environment) {
  pid_t child = -1;
  require(posix_spawn(&child, kSelf, nullptr, nullptr, arguments, environment) == 0, "posix_spawn");
  return child;
}

pid_t by_spawn_on_path(char* const* arguments, char* const* environment) {
  pid_t child = -1;
  require(posix_spawnp(&child, kSelf, nullptr, nullptr, arguments, environment) == 0,
          "posix_spawnp");
  return child;
}

pid_t by_fork(char* const* arguments, char* const* environment) {
  const pid_t child = fork();
  if (child == 0) {
    execve(kSelf, arguments, environment);
    _exit(97);
  }
  return child;
}

pid_t by_vfork(char* const* arguments, char* const* environment) {
  const pid_t child = vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork)
  if (child == 0) {
    execve(kSelf, arguments, environment);
    _exit(97);
  }
  return child;
}

char* const* scrubbed() {
  static char host_only[256];
  const std::string text = std::string(kHostVariable) + "=" + host();
  text.copy(host_only, sizeof(host_only) - 1);
  static char* const environment[] = {host_only, nullptr};
  return environment;
}

// What a child finds of a program that has connections with FD_CLOEXEC and without, a listener of
// each, and sets of epoll.
void say_child(Side& side, Start start, bool scrub, bool inherits) {
  const int listener = side.listen_here();
  std::vector<int> connections;
  for (int i = 0; i < 4; ++i) {
    const int flags = !inherits || i % 2 == 0 ? SOCK_CLOEXEC : 0;
    connections.push_back(accept4(listener, nullptr, nullptr, flags));
    send_text(side, connections.back(), "hello");
  }
  if (!inherits) require(fcntl(listener, F_SETFD, FD_CLOEXEC) == 0, "fcntl");
  const int set = epoll_create1(EPOLL_CLOEXEC);
  require(set >= 0, "epoll_create1");
  for (int i = 0; i < 2; ++i) {
    std::string words[] = {"posix_cases", kExecuted, kLists};
    char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    const pid_t child = start(arguments, scrub ? scrubbed() : environ);
    require(child > 0, "a child");
    say_end(side, child);
  }
  for (const int fd : connections) {
    side.say_data("received", recv_all(side, fd, 5));
    close(fd);
  }
}

template <Start kStart, bool kScrub, bool kInherits>
void say_child(Side& side) {
  say_child(side, kStart, kScrub, kInherits);
}

// The soft limit that most systems set; above it there is room for what leat hides.
void set_usual_limit() {
  rlimit limit{};
  require(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max > 1024, "getrlimit");
  limit.rlim_cur = 1024;
  require(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
}

// Starts a program that gets the connection at a number of its own, and waits for its end.
bool spawn_heir(int fd) {
  posix_spawn_file_actions_t actions;
  require(posix_spawn_file_actions_init(&actions) == 0, "init");
  require(posix_spawn_file_actions_adddup2(&actions, fd, 350) == 0, "adddup2");
  char name[] = "true";
  char* arguments[] = {name, nullptr};
  pid_t child = -1;
  const int error = posix_spawnp(&child, name, &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = -1;
  return error == 0 && waitpid(child, &status, 0) == child && status == 0;
}

rlim_t soft_limit() {
  rlimit limit{};
  require(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
  return limit.rlim_cur;
}

// While another thread starts programs that get a connection.
template <typename Call>
void say_beside_heirs(Side& side, const Call& call) {
  set_usual_limit();
  const int listener = side.listen_here();
  require(fcntl(listener, F_SETFD, FD_CLOEXEC) == 0, "fcntl");
  std::vector<int> connections;
  for (int i = 0; i < 4; ++i)
    connections.push_back(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  std::atomic<bool> enough{false};
  std::atomic<int> heirs{0};
  int bad = 0;
  std::thread spawning([&] {
    for (; !enough; ++heirs)
      for (const int fd : connections) bad += spawn_heir(fd) ? 0 : 1;
  });
  while (heirs == 0) sched_yield();
  call();
  enough = true;
  spawning.join();
  SAY(bad);
  SAY(soft_limit());
  for (const int fd : connections) {
    send_text(side, fd, "hello");
    side.say_data("received", recv_all(side, fd, 5));
    close(fd);
  }
}

// What children find that get nothing.
template <Start kStart>
void say_child_beside_heirs(Side& side) {
  say_beside_heirs(side, [&side] {
    for (int i = 0; i < 20; ++i) {
      std::string words[] = {"posix_cases", kExecuted, kLists};
      char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
      const pid_t child = kStart(arguments, scrubbed());
      require(child > 0, "a child");
      say_end(side, child);
    }
  });
}

// Forked children have the limit that the program set, whatever is raised meanwhile.
void say_limit_beside_heirs(Side& side) {
  say_beside_heirs(side, [&side] {
    int others = 0;
    for (int i = 0; i < 300; ++i) {
      const pid_t child = fork();
      if (child == 0) _exit(soft_limit() == 1024 ? 0 : 1);
      int status = -1;
      require(waitpid(child, &status, 0) == child, "waitpid");
      others += status != 0 ? 1 : 0;
    }
    SAY(others);
  });
}

void connect_four(Side& side) {
  const int port = side.hear();
  std::vector<int> connections;
  for (int i = 0; i < 4; ++i) {
    connections.push_back(socket(AF_INET, SOCK_STREAM, 0));
    require(connect_to(connections.back(), port) == 0, "connect");
    send_text(side, connections.back(), "there");
  }
  for (const int fd : connections) {
    side.say_data("received", recv_all(side, fd, 5));
    side.say_data("rest", recv_to_end(side, fd));
  }
}

}  // namespace

int run_list() {
  const Side side(Role::kServer);
  std::map<int, std::string> found;
  DIR* folder = opendir("/proc/self/fd");
  require(folder != nullptr, "opendir");
  while (const dirent* entry = readdir(folder)) {  // NOLINT(concurrency-mt-unsafe)
    const int fd = std::atoi(entry->d_name);       // NOLINT(cert-err34-c)
    const bool of_suite = fd >= kTranscript && fd <= kHear;
    if (entry->d_name[0] == '.' || fd == dirfd(folder) || of_suite) continue;
    char link[256] = {};
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    if (readlink(path.c_str(), link, sizeof(link) - 1) > 0) found[fd] = kind_of(link);
  }
  closedir(folder);
  for (const auto& [fd, kind] : found)
    if (fd > STDERR_FILENO) side.say(std::to_string(fd) + " " + kind);
  side.say("no others");
  return 0;
}

Cases spawn_cases() {
  return {
      {"spawn.scrubbed", say_child<by_spawn, true, false>, connect_four},
      {"spawn.scrubbed_on_path", say_child<by_spawn_on_path, true, false>, connect_four},
      {"spawn.scrubbed_fork", say_child<by_fork, true, false>, connect_four},
      {"spawn.scrubbed_vfork", say_child<by_vfork, true, false>, connect_four},
      {"spawn.scrubbed_inherits", say_child<by_spawn, true, true>, connect_four},
      {"spawn.scrubbed_fork_inherits", say_child<by_fork, true, true>, connect_four},
      {"spawn.inherits_nothing", say_child<by_spawn, false, false>, connect_four},
      {"spawn.inherits_nothing_fork", say_child<by_fork, false, false>, connect_four},
      {"spawn.scrubbed_beside_heirs", say_child_beside_heirs<by_spawn>, connect_four},
      {"spawn.scrubbed_fork_beside_heirs", say_child_beside_heirs<by_fork>, connect_four},
      {"spawn.limit_beside_heirs", say_limit_beside_heirs, connect_four},
  };
}

}  // namespace posix_cases
