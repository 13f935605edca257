// Connections and fork: the connection follows the process that uses it.
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "case.h"

namespace posix_cases {
namespace {

pid_t in_child(const std::function<void()>& body) {
  const pid_t child = fork();
  require(child >= 0, "fork");
  if (child == 0) {
    body();
    _exit(0);
  }
  return child;
}

// Like fork, but without running the handlers of pthread_atfork().
pid_t in_clone(const std::function<void()>& body) {
  alignas(16) static char stack[1 << 18];
  const pid_t child = clone(
      [](void* what) {
        (*static_cast<const std::function<void()>*>(what))();
        return 0;
      },
      stack + sizeof(stack), SIGCHLD, const_cast<std::function<void()>*>(&body));
  require(child >= 0, "clone");
  return child;
}

void say_end(const Side& side, pid_t child) {
  int status = -1;
  require(waitpid(child, &status, 0) == child, "waitpid");
  SAY(status);
}

void echo(const Side& side, int fd) {
  Bytes buffer(1 << 16);
  ssize_t got = 0;
  while ((got = recv(fd, buffer.data(), buffer.size(), 0)) > 0) {
    buffer.resize(static_cast<std::size_t>(got));
    send_all(side, fd, buffer);
    buffer.resize(1 << 16);
  }
  if (got != 0) side.say_result("echo: recv", got);
}

// A client of an echo server: two texts, and the end.
void use_echo(Side& side) {
  const int fd = side.connected();
  send_all(side, fd, pattern(100));
  side.say_data("echoed", recv_all(side, fd, 100));
  send_all(side, fd, pattern(40000, 2));
  side.say_data("echoed", recv_all(side, fd, 40000));
  SAY(shutdown(fd, SHUT_WR));
  side.say_data("rest", recv_to_end(side, fd));
}

// Connects `count` times, each for one question and its answer.
void ask_often(Side& side, int count) {
  const int port = side.hear();
  for (int i = 0; i < count; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(connect_to(fd, port));
    send_all(side, fd, pattern(500, static_cast<unsigned>(i)));
    side.say_data("echoed", recv_all(side, fd, 500));
    close(fd);
  }
}

// A question of its own and the answer, on a new connection that the server closes first.
void ask_once(const Side& side, int port, unsigned seed) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  require(connect_to(fd, port) == 0, "connect");
  const Bytes question = pattern(3000, seed);
  send_all(side, fd, question);
  if (recv_all(side, fd, 3000) != question) side.say("another's answer");
  wait_for(side, fd, POLLRDHUP);
  close(fd);
}

// Questions at the same time as another process asks its own.
void ask_twice(const Side& side, int port, unsigned seed) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  require(connect_to(fd, port) == 0, "connect");
  for (unsigned i = 0; i < 20; ++i) {
    const Bytes question = pattern(3000, seed * 100 + i);
    send_all(side, fd, question);
    if (recv_all(side, fd, 3000) != question) side.say("another's answer");
  }
  shutdown(fd, SHUT_WR);
  wait_for(side, fd, POLLRDHUP);
  close(fd);
}

// The server of those: one, then two at once.
void serve_pairs(Side& side, int times) {
  const int listener = side.listen_here();
  for (int i = 0; i < times; ++i) {
    int fd = accept(listener, nullptr, nullptr);
    send_all(side, fd, recv_all(side, fd, 3000));
    close(fd);
    pid_t children[2];
    for (pid_t& child : children) {
      fd = accept(listener, nullptr, nullptr);
      child = in_child([&] { echo(side, fd); });
      close(fd);
    }
    for (const pid_t child : children) say_end(side, child);
  }
}

}  // namespace

Cases process_cases() {
  return {
      {"process.child_serves",
       [](Side& side) {
         // inetd, PostgreSQL, sshd.
         const int fd = side.connected();
         const pid_t child = in_child([&] { echo(side, fd); });
         SAY(close(fd));
         say_end(side, child);
       },
       use_echo},

      {"process.cloned_serves",
       [](Side& side) {
         const int fd = side.connected();
         const pid_t child = in_clone([&] { echo(side, fd); });
         SAY(close(fd));
         say_end(side, child);
       },
       use_echo},

      {"process.bare_fork_serves",
       [](Side& side) {
         const int fd = side.connected();
         const pid_t child = _Fork();
         if (child == 0) {
           echo(side, fd);
           _exit(0);
         }
         SAY(close(fd));
         say_end(side, child);
       },
       use_echo},

      {"process.clones_connect", [](Side& side) { serve_pairs(side, 4); },
       [](Side& side) {
         const int port = side.hear();
         for (int i = 0; i < 4; ++i) {
           ask_once(side, port, 1);
           const pid_t child = i % 2 == 0 ? in_clone([&] { ask_twice(side, port, 2); }) : _Fork();
           if (child == 0) {
             ask_twice(side, port, 2);
             _exit(0);
           }
           ask_twice(side, port, 3);
           say_end(side, child);
         }
       }},

      {"process.daemon_without_streams",
       [](Side& side) {
         const int fd = side.connected();
         SAY(dup2(fd, 0));
         SAY(close(fd));
         side.tell();
         if (daemon(1, 0) != 0) side.say("no daemon");
         char byte = 0;
         SAY(read(0, &byte, 1));
         SAY(write(1, "nowhere", 7));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         side.hear();
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"process.parent_serves",
       [](Side& side) {
         // popen, system, and daemons that start helpers.
         const int fd = side.connected();
         say_end(side, in_child([&] { close(fd); }));
         echo(side, fd);
       },
       use_echo},

      {"process.child_leaves_it_open",
       [](Side& side) {
         const int fd = side.connected();
         const pid_t child = in_child([&] { side.hear(); });
         send_text(side, fd, "from the parent");
         SAY(close(fd));
         // No end for the peer until the child has gone, too.
         side.tell();
         say_end(side, child);
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         side.say_data("received", recv_all(side, fd, 15));
         pollfd polled{fd, POLLIN | POLLRDHUP, 0};
         SAY(poll(&polled, 1, 50));
         side.tell();
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"process.used_before_fork",
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_all(side, fd, 100));
         send_all(side, fd, pattern(100, 5));
         const pid_t child = in_child([&] {
           side.say_data("received", recv_all(side, fd, 100));
           send_all(side, fd, pattern(100, 6));
         });
         say_end(side, child);
         // Back to the parent, after the child has ended.
         side.say_data("received", recv_all(side, fd, 100));
         send_all(side, fd, pattern(100, 7));
       },
       [](Side& side) {
         const int fd = side.connected();
         for (unsigned i = 0; i < 3; ++i) {
           send_all(side, fd, pattern(100, i));
           side.say_data("received", recv_all(side, fd, 100));
         }
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"process.unread_data_at_fork",
       [](Side& side) {
         const int fd = side.connected();
         wait_bytes(side, fd, 1000);
         recv_all(side, fd, 300);
         const pid_t child = in_child([&] {
           side.say_data("received", recv_all(side, fd, 700));
           send_text(side, fd, "got it");
         });
         close(fd);
         say_end(side, child);
       },
       [](Side& side) {
         const int fd = side.connected();
         send_all(side, fd, pattern(1000));
         side.say_data("answer", recv_to_end(side, fd));
       }},

      {"process.one_sends_other_receives",
       [](Side& side) {
         // Telnet clients of old, and nc as some write it: one process for each direction.
         const int fd = side.connected();
         const pid_t child = in_child([&] {
           side.say_data("received", recv_to_end(side, fd));
           side.tell();
         });
         send_all(side, fd, pattern(3000, 2));
         shutdown(fd, SHUT_WR);
         say_end(side, child);
       },
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_to_end(side, fd));
         send_all(side, fd, pattern(4000));
         SAY(shutdown(fd, SHUT_WR));
         side.hear();
       }},

      {"process.child_of_client",
       [](Side& side) {
         const int fd = side.connected();
         echo(side, fd);
       },
       [](Side& side) {
         const int fd = side.connected();
         const pid_t child = in_child([&] {
           send_all(side, fd, pattern(5000));
           side.say_data("echoed", recv_all(side, fd, 5000));
           SAY(shutdown(fd, SHUT_WR));
           side.say_data("rest", recv_to_end(side, fd));
         });
         close(fd);
         say_end(side, child);
       }},

      {"process.accepting_children",
       [](Side& side) {
         // Workers as of nginx and Apache: the listener is from before fork.
         const int listener = side.listen_here();
         pid_t children[2];
         for (pid_t& child : children) {
           child = in_child([&] {
             while (true) {
               const int fd = accept(listener, nullptr, nullptr);
               echo(side, fd);
               close(fd);
             }
           });
         }
         side.hear();
         for (const pid_t child : children) {
           kill(child, SIGTERM);
           say_end(side, child);
         }
       },
       [](Side& side) {
         ask_often(side, 10);
         side.tell();
       }},

      {"process.fork_for_each",
       [](Side& side) {
         const int listener = side.listen_here();
         for (int i = 0; i < 8; ++i) {
           const int fd = accept(listener, nullptr, nullptr);
           const pid_t child = in_child([&] {
             close(listener);
             echo(side, fd);
           });
           close(fd);
           say_end(side, child);
         }
       },
       [](Side& side) { ask_often(side, 8); }},

      {"process.reuse_port",
       [](Side& side) {
         const int one = 1;
         int listeners[2];
         sockaddr_in address = meeting_place(0);
         socklen_t length = sizeof(address);
         for (int& listener : listeners) {
           listener = socket(AF_INET, SOCK_STREAM, 0);
           SAY(setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)));
           SAY(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)));
           SAY(listen(listener, 16));
           SAY(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length));
         }
         pid_t children[2];
         for (int i = 0; i < 2; ++i) {
           children[i] = in_child([&] {
             close(listeners[1 - i]);
             while (true) {
               const int fd = accept(listeners[i], nullptr, nullptr);
               echo(side, fd);
               close(fd);
             }
           });
         }
         close(listeners[0]);
         close(listeners[1]);
         side.tell(ntohs(address.sin_port));
         side.hear();
         for (const pid_t child : children) {
           kill(child, SIGTERM);
           say_end(side, child);
         }
       },
       [](Side& side) {
         ask_often(side, 20);
         side.tell();
       }},

      {"process.system_and_popen",
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "one");
         SAY(std::system("true"));                  // NOLINT(concurrency-mt-unsafe,cert-env33-c)
         FILE* output = popen("echo output", "r");  // NOLINT(cert-env33-c)
         char line[16] = {};
         require(output != nullptr && fgets(line, sizeof(line), output) != nullptr, "popen");
         side.say_data("output", line, 6);
         SAY(pclose(output));
         send_text(side, fd, "two");
       },
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_to_end(side, fd));
       }},

      {"process.vfork_without_handlers",
       [](Side& side) {
         const int fd = side.connected();
         static std::atomic<int> calls;
         pthread_atfork([] { ++calls; }, [] { ++calls; }, nullptr);
         const pid_t child = vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork)
         if (child == 0) _exit(5);
         say_end(side, child);
         SAY(calls);
         send_text(side, fd, "done");
       },
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_to_end(side, fd));
       }},

      {"process.daemon",
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "from the parent");
         const pid_t child = in_child([&] {
           SAY(setsid() > 0);
           const pid_t grandchild = fork();
           if (grandchild == 0) {
             echo(side, fd);
             side.tell();
           }
         });
         close(fd);
         say_end(side, child);
         side.hear();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_all(side, fd, 15));
         send_all(side, fd, pattern(300));
         side.say_data("echoed", recv_all(side, fd, 300));
         SAY(close(fd));
         side.hear();
         side.tell();
       }},
  };
}

}  // namespace posix_cases
