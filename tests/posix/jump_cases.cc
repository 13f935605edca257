// Calls that are left by a jump, and what runs in children that run no handlers of the program.
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "case.h"

namespace posix_cases {
namespace {

sigjmp_buf place;

// How long the peer delays its answer, so that the caller that waits for it sleeps.
constexpr std::chrono::milliseconds kThought{3};

// Whether answers come without delay, by the shortest of many turns to the peer and back: a busy
// machine does not delay every one of them.
bool answered_at_once(const Side& side, int fd) {
  constexpr int kTurns = 50;
  constexpr std::chrono::milliseconds kAtMost{7};
  auto best = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < kTurns; ++i) {
    const auto start = std::chrono::steady_clock::now();
    send_text(side, fd, "x");
    char byte = 0;
    require(recv(fd, &byte, 1, 0) == 1, "recv");
    best = std::min(best, std::chrono::steady_clock::now() - start);
  }
  return best < kAtMost;
}

void think_and_echo(Side& side) {
  const int fd = side.connected();
  char byte = 0;
  while (recv(fd, &byte, 1, 0) == 1) {
    sleep_ms(static_cast<int>(kThought.count()));
    require(send(fd, &byte, 1, 0) == 1, "send");
  }
  SAY(close(fd));
}

void jump_on_alarm() {
  struct sigaction action {};
  action.sa_handler = [](int) { siglongjmp(place, 1); };
  require(sigaction(SIGALRM, &action, nullptr) == 0, "sigaction");
}

// The alarm comes once the call sleeps.
template <typename Call>
void leave(const Call& call) {
  if (sigsetjmp(place, 1) != 0) return;
  const itimerval soon{{0, 0}, {0, 50'000}};
  require(setitimer(ITIMER_REAL, &soon, nullptr) == 0, "setitimer");
  call();
  require(false, "the call not to return");
}

// Handlers of fork() that have run, in this process and in the child.
int prepared = 0;
int in_parent = 0;
int in_child = 0;

void count_handlers() {
  require(pthread_atfork([] { ++prepared; }, [] { ++in_parent; }, [] { ++in_child; }) == 0,
          "pthread_atfork");
}

void say_handlers(const Side& side, pid_t child) {
  int status = -1;
  require(child > 0 && waitpid(child, &status, 0) == child, "waitpid");
  SAY(status);
  SAY(prepared);
  SAY(in_parent);
}

}  // namespace

Cases jump_cases() {
  return {
      {"jump.out_of_recv", think_and_echo,
       [](Side& side) {
         const int fd = side.connected();
         SAY(answered_at_once(side, fd));
         jump_on_alarm();
         for (int i = 0; i < 3; ++i) {
           leave([fd] {
             char byte = 0;
             recv(fd, &byte, 1, 0);
           });
         }
         SAY(answered_at_once(side, fd));
         send_text(side, fd, "whole");
         side.say_data("received", recv_all(side, fd, 5));
         SAY(shutdown(fd, SHUT_WR));
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"jump.out_of_poll", think_and_echo,
       [](Side& side) {
         const int fd = side.connected();
         jump_on_alarm();
         for (int i = 0; i < 3; ++i) {
           leave([fd] {
             pollfd polled{fd, POLLIN, 0};
             poll(&polled, 1, -1);
           });
         }
         SAY(answered_at_once(side, fd));
         SAY(shutdown(fd, SHUT_WR));
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"jump.out_of_send",
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         const Bytes all = recv_to_end(side, fd);
         // Nothing tells how much the abandoned call has sent.
         SAY(all.size() >= 5);
         side.say_data("last", all.data() + (all.size() - 5), 5);
       },
       [](Side& side) {
         const int fd = side.connected();
         fill(side, fd);
         jump_on_alarm();
         leave([fd] {
           static const Bytes data(1U << 22U);
           send(fd, data.data(), data.size(), 0);
         });
         side.tell();
         send_text(side, fd, "whole");
         SAY(shutdown(fd, SHUT_WR));
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"process.handlers_of_fork",
       [](Side& side) {
         const int fd = side.connected();
         count_handlers();
         pid_t child = vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork)
         if (child == 0) _exit(in_child);
         say_handlers(side, child);
         child = _Fork();
         if (child == 0) _exit(in_child);
         say_handlers(side, child);
         char name[] = "true";
         char* arguments[] = {name, nullptr};
         require(posix_spawn(&child, "/bin/true", nullptr, nullptr, arguments, environ) == 0,
                 "posix_spawn");
         say_handlers(side, child);
         child = fork();
         if (child == 0) _exit(in_child);
         say_handlers(side, child);
         SAY(close(fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("rest", recv_to_end(side, fd));
       }},
  };
}

}  // namespace posix_cases
