// Signals at every call that blocks: EINTR without SA_RESTART, and what SA_RESTART carries on with.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "case.h"

namespace posix_cases {
namespace {

volatile sig_atomic_t signals = 0;

void handle(int number, int flags) {
  struct sigaction action {};
  action.sa_handler = [](int) { signals = signals + 1; };
  action.sa_flags = flags;
  require(sigaction(number, &action, nullptr) == 0, "sigaction");
}

// Sends a signal soon, and again, in case the call had not begun to wait.
void alarm_soon(bool again) {
  const itimerval soon{{0, again ? 50000 : 0}, {0, 50000}};
  require(setitimer(ITIMER_REAL, &soon, nullptr) == 0, "setitimer");
}

void stop_alarm() {
  const itimerval never{};
  require(setitimer(ITIMER_REAL, &never, nullptr) == 0, "setitimer");
}

// `call` is interrupted: it says what it gave.
void interrupt(const Side& side, const std::function<void()>& call) {
  signals = 0;
  alarm_soon(true);
  call();
  stop_alarm();
  SAY(signals >= 1);
}

// Every call that waits for data of `fd`, none of which has any.
void say_interrupted(const Side& side, int fd) {
  char buffer[16];
  iovec part{buffer, sizeof(buffer)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  mmsghdr messages{};
  messages.msg_hdr = message;
  interrupt(side, [&] { SAY(recv(fd, buffer, sizeof(buffer), 0)); });
  interrupt(side, [&] { SAY(recv(fd, buffer, sizeof(buffer), MSG_PEEK)); });
  interrupt(side, [&] { SAY(recv(fd, buffer, sizeof(buffer), MSG_WAITALL)); });
  interrupt(side, [&] { SAY(recvfrom(fd, buffer, sizeof(buffer), 0, nullptr, nullptr)); });
  interrupt(side, [&] { SAY(recvmsg(fd, &message, 0)); });
  interrupt(side, [&] { SAY(recvmmsg(fd, &messages, 1, 0, nullptr)); });
  interrupt(side, [&] { SAY(read(fd, buffer, sizeof(buffer))); });
  interrupt(side, [&] { SAY(readv(fd, &part, 1)); });
}

// Every call that waits for events.
void say_waits_interrupted(const Side& side, int fd) {
  pollfd polled{fd, POLLIN, 0};
  const timespec patience{kPatienceMs / 1000, 0};
  timeval time{kPatienceMs / 1000, 0};
  fd_set set;
  FD_ZERO(&set);
  FD_SET(fd, &set);
  epoll_event event{};
  event.events = EPOLLIN;
  const int events = epoll_create1(0);
  SAY(epoll_ctl(events, EPOLL_CTL_ADD, fd, &event));
  interrupt(side, [&] { SAY(poll(&polled, 1, kPatienceMs)); });
  interrupt(side, [&] { SAY(ppoll(&polled, 1, &patience, nullptr)); });
  interrupt(side, [&] { SAY(select(fd + 1, &set, nullptr, nullptr, &time)); });
  interrupt(side, [&] { SAY(pselect(fd + 1, &set, nullptr, nullptr, &patience, nullptr)); });
  interrupt(side, [&] { SAY(epoll_wait(events, &event, 1, kPatienceMs)); });
  interrupt(side, [&] { SAY(epoll_pwait(events, &event, 1, kPatienceMs, nullptr)); });
  SAY(close(events));
}

void end_when_told(Side& side) {
  const int fd = side.connected();
  side.hear();
  SAY(close(fd));
}

}  // namespace

Cases signal_cases() {
  return {
      {"signal.interrupts_receive",
       [](Side& side) {
         const int fd = side.connected();
         handle(SIGALRM, 0);
         say_interrupted(side, fd);
         side.tell();
       },
       end_when_told},

      {"signal.interrupts_waits",
       [](Side& side) {
         const int fd = side.connected();
         handle(SIGALRM, 0);
         say_waits_interrupted(side, fd);
         // SA_RESTART does not help them.
         handle(SIGALRM, SA_RESTART);
         say_waits_interrupted(side, fd);
         side.tell();
       },
       end_when_told},

      {"signal.interrupts_send",
       [](Side& side) {
         const int fd = side.connected();
         fill(side, fd);
         handle(SIGALRM, 0);
         iovec part{const_cast<char*>("x"), 1};
         interrupt(side, [&] { SAY(until_failure([&] { return send(fd, "x", 1, 0); })); });
         interrupt(side, [&] { SAY(until_failure([&] { return write(fd, "x", 1); })); });
         interrupt(side, [&] { SAY(until_failure([&] { return writev(fd, &part, 1); })); });
         side.tell();
       },
       end_when_told},

      {"signal.interrupts_accept",
       [](Side& side) {
         const int listener = side.listen_here();
         handle(SIGALRM, 0);
         interrupt(side, [&] { SAY(accept(listener, nullptr, nullptr)); });
         interrupt(side, [&] { SAY(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)); });
         side.tell();
         const int fd = accept(listener, nullptr, nullptr);
         SAY(fd >= 0);
         side.say_data("received", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int port = side.hear();
         side.hear();
         const int fd = socket(AF_INET, SOCK_STREAM, 0);
         SAY(connect_to(fd, port));
         send_text(side, fd, "hello");
       }},

      {"signal.restarts",
       [](Side& side) {
         const int fd = side.connected();
         handle(SIGALRM, SA_RESTART);
         char buffer[16] = {};
         iovec part{buffer, 4};
         // The client answers 200 ms later; the signal comes after 50.
         alarm_soon(false);
         side.tell();
         SAY(recv(fd, buffer, 4, 0));
         alarm_soon(false);
         side.tell();
         SAY(read(fd, buffer, 4));
         alarm_soon(false);
         side.tell();
         SAY(readv(fd, &part, 1));
         alarm_soon(false);
         side.tell();
         SAY(recv(fd, buffer, 4, MSG_WAITALL));
         SAY(signals);
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         for (int i = 0; i < 4; ++i) {
           side.hear();
           sleep_ms(200);
           send_text(side, fd, "four");
         }
         side.hear();
       }},

      {"signal.timeouts_do_not_restart",
       [](Side& side) {
         const int fd = side.connected();
         handle(SIGALRM, SA_RESTART);
         const timeval patience{kPatienceMs / 1000, 0};
         SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)));
         char buffer[16];
         interrupt(side, [&] { SAY(recv(fd, buffer, 4, 0)); });
         interrupt(side, [&] { SAY(read(fd, buffer, 4)); });
         side.tell();
       },
       end_when_told},

      {"signal.interrupts_after_some",
       [](Side& side) {
         // What has come before the signal counts.
         const int fd = side.connected();
         handle(SIGALRM, 0);
         char buffer[16] = {};
         wait_bytes(side, fd, 3);
         interrupt(side, [&] { SAY(recv(fd, buffer, 10, MSG_WAITALL)); });
         side.say_data("received", buffer, 3);
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "abc");
         side.hear();
       }},

      {"signal.restarts_nothing_after_some",
       [](Side& side) {
         // Nor does SA_RESTART go on with what has begun.
         const int fd = side.connected();
         handle(SIGALRM, SA_RESTART);
         char buffer[16] = {};
         wait_bytes(side, fd, 3);
         interrupt(side, [&] { SAY(recv(fd, buffer, 10, MSG_WAITALL)); });
         side.say_data("received", buffer, 3);
         const Bytes data(64U << 20U);
         ssize_t sent = 0;
         interrupt(side, [&] { sent = send(fd, data.data(), data.size(), 0); });
         SAY(sent > 0 && sent < std::ssize(data));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "abc");
         side.hear();
       }},

      {"signal.handler_sends_within_send",
       [](Side& side) {
         const int fd = side.connected();
         Bytes part(1 << 16);
         long got = 0;
         for (ssize_t now = 1; now > 0; got += now) now = recv(fd, part.data(), part.size(), 0);
         SAY(got == side.hear());
       },
       [](Side& side) {
         static int connection = -1;
         static volatile sig_atomic_t sent = 0;
         connection = side.connected();
         struct sigaction action {};
         action.sa_handler = [](int) {
           const int kept = errno;
           sent = sent + (send(connection, "x", 1, MSG_DONTWAIT) == 1 ? 1 : 0);
           errno = kept;
         };
         action.sa_flags = SA_RESTART;
         SAY(sigaction(SIGALRM, &action, nullptr));
         const itimerval often{{0, 200}, {0, 200}};
         require(setitimer(ITIMER_REAL, &often, nullptr) == 0, "setitimer");
         const Bytes data = pattern(1U << 20U);
         for (int i = 0; i < 40; ++i) send_all(side, connection, data);
         stop_alarm();
         SAY(shutdown(connection, SHUT_WR));
         side.tell(static_cast<int>(sent) + 40 * static_cast<int>(data.size()));
       }},

      {"signal.handler_uses_connection",
       [](Side& side) {
         // send and recv are safe in handlers of signals.
         static int connection = -1;
         connection = side.connected();
         struct sigaction action {};
         action.sa_handler = [](int) {
           signals = signals + (send(connection, "x", 1, 0) == 1 ? 1 : 0);
         };
         action.sa_flags = SA_RESTART;
         SAY(sigaction(SIGALRM, &action, nullptr));
         alarm_soon(false);
         char buffer[16];
         SAY(recv(connection, buffer, 6, MSG_WAITALL));
         SAY(signals);
       },
       [](Side& side) {
         const int fd = side.connected();
         char byte = 0;
         SAY(recv(fd, &byte, 1, 0));
         send_text(side, fd, "answer");
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"signal.handler_uses_new_connections",
       [](Side& side) {
         const int listener = side.listen_here(64);
         int good = 0;
         int received = 0;
         for (int i = 0; i < 50; ++i) {
           const int fd = accept(listener, nullptr, nullptr);
           char bytes[64];
           bool same = true;
           ssize_t got = 0;
           while ((got = recv(fd, bytes, sizeof(bytes), 0)) > 0) {
             same = same && std::all_of(bytes, bytes + got, [](char one) { return one == 'x'; });
             received += static_cast<int>(got);
           }
           if (same && got == 0) ++good;
           close(fd);
         }
         SAY(good);
         SAY(received - side.hear());
       },
       [](Side& side) {
         // Its handler may find it half made.
         static volatile int connection = -1;
         static volatile int sent = 0;
         struct sigaction action {};
         action.sa_handler = [](int) {
           const int kept_errno = errno;
           if (connection >= 0 && send(connection, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
             sent = sent + 1;
           errno = kept_errno;
         };
         action.sa_flags = SA_RESTART;
         SAY(sigaction(SIGALRM, &action, nullptr));
         const int port = side.hear();
         const itimerval often{{0, 200}, {0, 200}};
         require(setitimer(ITIMER_REAL, &often, nullptr) == 0, "setitimer");
         int connected = 0;
         for (int i = 0; i < 50; ++i) {
           const int fd = socket(AF_INET, SOCK_STREAM, 0);
           connection = fd;
           if (connect_to(fd, port) == 0) ++connected;
           connection = -1;
           close(fd);
         }
         stop_alarm();
         SAY(connected);
         side.tell(sent);
       }},

      {"signal.storm",
       [](Side& side) {
         const int fd = side.connected();
         handle(SIGALRM, SA_RESTART);
         const itimerval often{{0, 500}, {0, 500}};
         require(setitimer(ITIMER_REAL, &often, nullptr) == 0, "setitimer");
         side.say_data("received", recv_to_end(side, fd));
         send_all(side, fd, pattern(5U << 20U, 2));
         stop_alarm();
         SAY(signals > 0);
       },
       [](Side& side) {
         const int fd = side.connected();
         send_all(side, fd, pattern(5U << 20U));
         SAY(shutdown(fd, SHUT_WR));
         sleep_ms(20);
         side.say_data("received", recv_to_end(side, fd));
       }},

      {"signal.storm_while_connecting",
       [](Side& side) {
         handle(SIGALRM, SA_RESTART);
         const int listener = side.listen_here(64);
         const itimerval often{{0, 200}, {0, 200}};
         require(setitimer(ITIMER_REAL, &often, nullptr) == 0, "setitimer");
         int echoed = 0;
         for (int i = 0; i < 300; ++i) {
           const int fd = accept(listener, nullptr, nullptr);
           char byte = 0;
           if (recv(fd, &byte, 1, 0) == 1 && send(fd, &byte, 1, 0) == 1) ++echoed;
           close(fd);
         }
         stop_alarm();
         SAY(echoed);
       },
       [](Side& side) {
         const int port = side.hear();
         int echoed = 0;
         for (int i = 0; i < 300; ++i) {
           const int fd = socket(AF_INET, SOCK_STREAM, 0);
           char byte = static_cast<char>(i);
           if (connect_to(fd, port) == 0 && send(fd, &byte, 1, 0) == 1 &&
               recv(fd, &byte, 1, 0) == 1 && byte == static_cast<char>(i))
             ++echoed;
           close(fd);
         }
         SAY(echoed);
       }},

      {"signal.masked_by_wait",
       [](Side& side) {
         // ppoll lets in what is blocked elsewhere.
         const int fd = side.connected();
         handle(SIGUSR1, 0);
         sigset_t usr1;
         sigset_t none;
         sigemptyset(&none);
         sigemptyset(&usr1);
         sigaddset(&usr1, SIGUSR1);
         SAY(pthread_sigmask(SIG_BLOCK, &usr1, nullptr));
         SAY(raise(SIGUSR1));
         SAY(signals);
         pollfd polled{fd, POLLIN, 0};
         const timespec patience{kPatienceMs / 1000, 0};
         SAY(poll(&polled, 1, 20));
         SAY(ppoll(&polled, 1, &patience, &none));
         SAY(signals);
         SAY(raise(SIGUSR1));
         SAY(pselect(0, nullptr, nullptr, nullptr, &patience, &none));
         SAY(signals);
         SAY(raise(SIGUSR1));
         epoll_event event{};
         const int events = epoll_create1(0);
         SAY(epoll_pwait(events, &event, 1, kPatienceMs, &none));
         SAY(signals);
         side.tell();
       },
       end_when_told},

      {"signal.asynchronous",
       [](Side& side) {
         const int fd = side.connected();
         handle(SIGIO, SA_RESTART);
         SAY(fcntl(fd, F_SETOWN, getpid()));
         SAY(fcntl(fd, F_GETOWN) == getpid());
         SAY(fcntl(fd, F_SETFL, O_ASYNC));
         side.tell();
         wait_bytes(side, fd, 4);
         sleep_ms(20);
         SAY(signals >= 1);
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         send_text(side, fd, "four");
         side.hear();
       }},
  };
}

}  // namespace posix_cases
