// Connections and commands of the shell: system and popen.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "case.h"

namespace posix_cases {
namespace {

int run(const char* command) {
  return std::system(command);  // NOLINT(concurrency-mt-unsafe,cert-env33-c)
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

Cases command_cases() {
  return {
      {"command.uses_connection",
       [](Side& side) {
         const int fd = side.connected();
         const std::string number = std::to_string(fd);
         const std::string command = "cat <&" + number + " >&" + number + "; exit 3";
         SAY(run(command.c_str()));
       },
       use_echo},

      {"command.piped_uses_connection",
       [](Side& side) {
         const int fd = side.connected();
         const std::string number = std::to_string(fd);
         const std::string command = "cat <&" + number + " >&" + number + "; echo done; exit 4";
         FILE* output = popen(command.c_str(), "r");  // NOLINT(cert-env33-c)
         close(fd);
         char line[16] = {};
         require(output != nullptr && fgets(line, sizeof(line), output) != nullptr, "popen");
         side.say_data("output", line, 5);
         SAY(pclose(output));
       },
       use_echo},

      {"command.signals",
       [](Side& side) {
         // The caller that waits for a command is not interrupted as the command is.
         const int fd = side.connected();
         std::string command = "kill -INT $PPID; kill -QUIT $PPID; kill -INT $$; exit 3";
         SAY(run(command.c_str()));
         SAY(run("no-such-command 2>&-"));
         SAY(run(nullptr) != 0);
         struct sigaction interrupt {};
         SAY(sigaction(SIGINT, nullptr, &interrupt));
         SAY(interrupt.sa_handler == SIG_DFL);
         sigset_t mask;
         SAY(pthread_sigmask(SIG_BLOCK, nullptr, &mask));
         SAY(sigismember(&mask, SIGCHLD));
         send_text(side, fd, "done");
       },
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_to_end(side, fd));
       }},

      {"command.of_cancelled_thread",
       [](Side& side) {
         const int fd = side.connected();
         static std::atomic<int> id;
         std::thread waiting([] {
           id = gettid();
           run("exec sleep 1000");
         });
         wait_asleep(id);
         SAY(pthread_cancel(waiting.native_handle()));
         waiting.join();
         SAY(wait(nullptr));
         struct sigaction interrupt {};
         SAY(sigaction(SIGINT, nullptr, &interrupt));
         SAY(interrupt.sa_handler == SIG_DFL);
         send_text(side, fd, "done");
       },
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_to_end(side, fd));
       }},

      {"command.several_piped",
       [](Side& side) {
         const int fd = side.connected();
         SAY(popen("true", "x") == nullptr);                  // NOLINT(cert-env33-c)
         SAY(popen("true", "rw") == nullptr);                 // NOLINT(cert-env33-c)
         FILE* first = popen("cat >/dev/null; exit 5", "w");  // NOLINT(cert-env33-c)
         // Has no end of the first one's pipe, which would keep that alive.
         FILE* second = popen("cat >/dev/null; exit 6", "we");  // NOLINT(cert-env33-c)
         require(first != nullptr && second != nullptr, "popen");
         SAY(fcntl(fileno(first), F_GETFD));
         SAY(fcntl(fileno(second), F_GETFD));
         SAY(fputs("text", first) >= 0);
         SAY(pclose(first));
         SAY(pclose(second));
         SAY(wait(nullptr));
         send_text(side, fd, "done");
       },
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_to_end(side, fd));
       }},
  };
}

}  // namespace posix_cases
