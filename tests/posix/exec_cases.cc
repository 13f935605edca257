// Connections and exec: a descriptor without FD_CLOEXEC is the next program's.
#include "exec.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

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

}  // namespace

int run_executed(const std::string& word) {
  if (word == kLists) return run_list();
  const std::string limited = kLimited;
  if (word.starts_with(limited)) return run_limited(std::stoi(word.substr(limited.size())));
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
