// Connections and exec: a descriptor without FD_CLOEXEC is the next program's.
#include "exec.h"

#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "case.h"

namespace posix_cases {
namespace {

constexpr char kSelf[] = "/proc/self/exe";

void execute(const std::string& descriptor) {
  execl(kSelf, kSelf, kExecuted, descriptor.c_str(), nullptr);
  _exit(97);
}

void say_end(const Side& side, pid_t child) {
  int status = -1;
  require(waitpid(child, &status, 0) == child, "waitpid");
  SAY(status);
}

void use_echo(Side& side) {
  const int fd = side.connected();
  send_text(side, fd, "before ");
  side.say_data("echoed", recv_all(side, fd, 7));
  send_all(side, fd, pattern(40000, 2));
  side.say_data("echoed", recv_all(side, fd, 40000));
  SAY(shutdown(fd, SHUT_WR));
  side.say_data("rest", recv_to_end(side, fd));
}

// What posix_spawn() is asked to do in the child, and the program that it then is.
class Spawn {
 public:
  Spawn() { require(posix_spawn_file_actions_init(&actions) == 0, "init"); }
  ~Spawn() { posix_spawn_file_actions_destroy(&actions); }
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;

  // Returns the child.
  pid_t run(std::vector<std::string> words, char* const* environment = environ) const {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t child = -1;
    errno = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environment);
    require(errno == 0, "posix_spawnp");
    return child;
  }

  posix_spawn_file_actions_t actions;
};

// How many anonymous files are open in a child that does not load leat.
void say_memory_of_child(const Side& side, Spawn& spawn) {
  posix_spawn_file_actions_adddup2(&spawn.actions, kTranscript, 1);
  char* nothing[] = {nullptr};
  const char* command = "ls -l /proc/self/fd | grep -c memfd:";
  say_end(side, spawn.run({"/bin/sh", "-c", command}, nothing));
}

void limit_descriptors(rlim_t soft, rlim_t hard) {
  const rlimit limit{soft, hard};
  require(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
}

rlim_t hard_limit() {
  rlimit limit{};
  require(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
  return limit.rlim_max;
}

// The child has the connection as standard input and output, and nothing else.
pid_t spawn_on_standard_streams(const Side& side, int fd) {
  SAY(fcntl(fd, F_SETFD, FD_CLOEXEC));
  Spawn spawn;
  SAY(posix_spawn_file_actions_adddup2(&spawn.actions, fd, 0));
  SAY(posix_spawn_file_actions_adddup2(&spawn.actions, 0, 1));
  SAY(posix_spawn_file_actions_addclosefrom_np(&spawn.actions, 3));
  return spawn.run({"cat"});
}

// In a frame of its own, which the child may write to.
[[gnu::noinline]] pid_t start_by_vfork(const char* argument) {
  const pid_t child = vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork)
  if (child != 0) return child;
  execlp("true", "true", argument, nullptr);
  _exit(97);
}

}  // namespace

int run_executed(const std::string& word) {
  if (word == kLists) return run_list();
  if (word == kLimited) return run_limited();
  const Side side(Role::kServer);
  int fd = std::stoi(word);
  int listens = 0;
  socklen_t length = sizeof(listens);
  require(getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0, "getsockopt");
  if (listens != 0) fd = accept(fd, nullptr, nullptr);
  Bytes buffer(1 << 16);
  ssize_t got = 0;
  // By read and write: the program may not know that it has a socket.
  while ((got = read(fd, buffer.data(), buffer.size())) > 0) {
    for (ssize_t sent = 0; sent < got;) {
      const ssize_t now = write(fd, buffer.data() + sent, static_cast<std::size_t>(got - sent));
      require(now > 0, "write");
      sent += now;
    }
  }
  side.say_result("executed: read", got);
  return 0;
}

Cases exec_cases() {
  return {
      {"exec.same_process",
       [](Side& side) {
         const int fd = side.connected();
         execute(std::to_string(fd));
       },
       use_echo},

      {"exec.used_before",
       [](Side& side) {
         const int fd = side.connected();
         send_all(side, fd, recv_all(side, fd, 7));
         execute(std::to_string(fd));
       },
       use_echo},

      {"exec.as_standard_input",
       [](Side& side) {
         const int fd = side.connected();
         const pid_t child = fork();
         if (child == 0) {
           dup2(fd, 0);
           close(fd);
           execute("0");
         }
         close(fd);
         say_end(side, child);
       },
       use_echo},

      {"exec.another_program",
       [](Side& side) {
         const int fd = side.connected();
         const pid_t child = fork();
         if (child == 0) {
           dup2(fd, 0);
           dup2(fd, 1);
           closefrom(3);
           execl("/bin/cat", "cat", nullptr);
           _exit(97);
         }
         close(fd);
         say_end(side, child);
       },
       use_echo},

      {"exec.vfork",
       [](Side& side) {
         const int fd = side.connected();
         const std::string number = std::to_string(fd);
         const pid_t child = vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork)
         if (child == 0) {
           execl(kSelf, kSelf, kExecuted, number.c_str(), nullptr);
           _exit(97);
         }
         close(fd);
         say_end(side, child);
       },
       use_echo},

      {"exec.posix_spawn",
       [](Side& side) {
         const int fd = side.connected();
         posix_spawn_file_actions_t actions;
         posix_spawn_file_actions_init(&actions);
         SAY(posix_spawn_file_actions_adddup2(&actions, fd, 350));
         SAY(posix_spawn_file_actions_addclose(&actions, fd));
         std::string words[] = {"posix_cases", kExecuted, "350"};
         char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
         pid_t child = -1;
         // Said after all that the child says.
         const int spawned = posix_spawn(&child, kSelf, &actions, nullptr, arguments, environ);
         posix_spawn_file_actions_destroy(&actions);
         close(fd);
         say_end(side, child);
         SAY(spawned);
       },
       use_echo},

      {"exec.spawned_on_standard_streams",
       [](Side& side) {
         const int fd = side.connected();
         const pid_t child = spawn_on_standard_streams(side, fd);
         close(fd);
         say_end(side, child);
       },
       use_echo},

      {"exec.spawned_with_the_usual_limit",
       [](Side& side) {
         limit_descriptors(1024, hard_limit());
         const int fd = side.connected();
         const pid_t child = spawn_on_standard_streams(side, fd);
         close(fd);
         say_end(side, child);
       },
       use_echo},

      {"exec.spawned_after_the_limit_fell",
       [](Side& side) {
         // Below the number of what leat hides, for good.
         const int fd = side.connected();
         limit_descriptors(300, 300);
         Spawn spawn;
         SAY(posix_spawn_file_actions_adddup2(&spawn.actions, fd, 290));
         const pid_t child = spawn.run({kSelf, kExecuted, "290"});
         close(fd);
         say_end(side, child);
       },
       use_echo},

      {"exec.spawned_on_streams_after_the_limit_fell",
       [](Side& side) {
         const int fd = side.connected();
         limit_descriptors(300, 300);
         const pid_t child = spawn_on_standard_streams(side, fd);
         close(fd);
         say_end(side, child);
       },
       use_echo},

      {"exec.spawned_closing_one_by_one",
       [](Side& side) {
         const int fd = side.connected();
         Spawn spawn;
         posix_spawn_file_actions_adddup2(&spawn.actions, fd, 0);
         posix_spawn_file_actions_adddup2(&spawn.actions, fd, 1);
         const auto end = static_cast<int>(sysconf(_SC_OPEN_MAX));
         for (int other = 3; other < end; ++other)
           posix_spawn_file_actions_addclose(&spawn.actions, other);
         const pid_t child = spawn.run({"cat"});
         close(fd);
         say_end(side, child);
       },
       use_echo},

      {"exec.spawned_in_place",
       [](Side& side) {
         // Onto itself: only FD_CLOEXEC goes.
         const int fd = side.connected();
         SAY(fcntl(fd, F_SETFD, FD_CLOEXEC));
         Spawn spawn;
         SAY(posix_spawn_file_actions_adddup2(&spawn.actions, fd, fd));
         const pid_t child = spawn.run({kSelf, kExecuted, std::to_string(fd)});
         close(fd);
         say_end(side, child);
       },
       use_echo},

      {"exec.spawned_where_another_was",
       [](Side& side) {
         // The child has the second connection at the number of the first.
         const int first = side.connected();
         const int second = side.connected();
         Spawn spawn;
         SAY(posix_spawn_file_actions_adddup2(&spawn.actions, second, first));
         SAY(posix_spawn_file_actions_addclose(&spawn.actions, second));
         const pid_t child = spawn.run({kSelf, kExecuted, std::to_string(first)});
         close(second);
         send_text(side, first, "from the parent");
         close(first);
         say_end(side, child);
       },
       [](Side& side) {
         const int first = side.connected();
         use_echo(side);
         side.say_data("first", recv_to_end(side, first));
       }},

      {"exec.spawned_without",
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "secret");
         SAY(fcntl(fd, F_SETFD, FD_CLOEXEC));
         Spawn spawn;
         say_memory_of_child(side, spawn);
         SAY(fcntl(fd, F_SETFD, 0));
         SAY(posix_spawn_file_actions_addclose(&spawn.actions, fd));
         say_memory_of_child(side, spawn);
       },
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_to_end(side, fd));
       }},

      {"exec.failed",
       [](Side& side) {
         // Nothing has changed then, whatever the program would have got.
         const int fd = side.connected();
         SAY(dup2(fd, 0));
         std::string program = "/bin/true";
         std::string too_long(1 << 18, 'x');
         char* arguments[] = {program.data(), too_long.data(), nullptr};
         char* nothing[] = {nullptr};
         SAY(execve("/bin/true", arguments, environ));
         SAY(execve("/bin/true", arguments, nothing));
         SAY(execve("/no/such/program", arguments, nothing));
         SAY(execvp("no-such-program", arguments));
         SAY(execlp("no-such-program", "name", nullptr));
         SAY(fcntl(fd, F_GETFD));
         SAY(fcntl(0, F_GETFD));
         close(fd);
         send_all(side, 0, recv_all(side, 0, 7));
         execute("0");
       },
       use_echo},

      {"exec.by_descriptor",
       [](Side& side) {
         const int fd = side.connected();
         const int program = open("/bin/cat", O_RDONLY | O_CLOEXEC);
         SAY(dup2(fd, 0));
         SAY(dup2(fd, 1));
         close(fd);
         char name[] = "cat";
         char* arguments[] = {name, nullptr};
         fexecve(program, arguments, environ);
         side.say("not reached");
       },
       use_echo},

      {"exec.vfork_beside_malloc",
       [](Side& side) {
         // A child of vfork() may find malloc's lock held by a thread that it does not have.
         const int fd = side.connected();
         const std::string number = std::to_string(fd);
         mallopt(M_ARENA_MAX, 1);  // one lock for all
         std::atomic<bool> enough{false};
         std::thread allocating([&] {
           // Larger than what malloc keeps for each thread.
           while (!enough) free(unknown(malloc(2000)));
         });
         int bad = 0;
         for (int i = 0; i < 100; ++i) {
           const pid_t child = start_by_vfork(number.c_str());
           int status = -1;
           bad += waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
         }
         enough = true;
         allocating.join();
         SAY(bad);
         send_text(side, fd, "still there");
       },
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_to_end(side, fd));
       }},

      {"exec.by_directory",
       [](Side& side) {
         const int fd = side.connected();
         const int folder = open("/bin", O_RDONLY | O_DIRECTORY);
         SAY(dup2(fd, 0));
         SAY(dup2(fd, 1));
         char name[] = "cat";
         char* arguments[] = {name, nullptr};
         closefrom(folder + 1);
         close(fd);
         execveat(folder, "cat", arguments, environ, 0);
         side.say("not reached");
       },
       use_echo},

      {"exec.closed_by_it",
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "last words");
         SAY(fcntl(fd, F_SETFD, FD_CLOEXEC));
         execl("/bin/sleep", "sleep", "0.1", nullptr);
       },
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_to_end(side, fd));
       }},

      {"exec.listener",
       [](Side& side) {
         // As systemd hands over a listening socket.
         const int listener = side.listen_here();
         const pid_t child = fork();
         if (child == 0) execute(std::to_string(listener));
         close(listener);
         say_end(side, child);
       },
       use_echo},
  };
}

}  // namespace posix_cases
