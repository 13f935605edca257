// Several threads on one connection, and what one does to another that waits.
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "case.h"

namespace posix_cases {
namespace {

// Runs `call` on a descriptor in another thread, cancels it there, and says how that thread ended.
void say_cancelled(const Side& side, int fd, void (*call)(int)) {
  struct Thread {
    int fd;
    void (*call)(int);
    std::atomic<int> number{0};
  } thread_data{fd, call};
  pthread_t thread{};
  const auto body = [](void* data) -> void* {
    auto* self = static_cast<Thread*>(data);
    self->number = gettid();
    self->call(self->fd);
    return nullptr;
  };
  require(pthread_create(&thread, nullptr, body, &thread_data) == 0, "pthread_create");
  wait_asleep(thread_data.number);
  SAY(pthread_cancel(thread));
  void* result = nullptr;
  SAY(pthread_join(thread, &result));
  SAY(result == PTHREAD_CANCELED);
}

// So that threads made from here on have only what this one leaves them.
void stay_on_this_processor() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  require(sched_setaffinity(0, sizeof(one), &one) == 0, "sched_setaffinity");
}

// Until hear() returns at once; not for long, because what is told may wait for another thread.
void keep_busy_until_told() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  pollfd told{kHear, POLLIN, 0};
  while (std::chrono::steady_clock::now() < until && poll(&told, 1, 0) == 0) {
  }
}

// For a thread: what the connection brings that comes to the listener.
void accept_and_receive(const Side& side, int listener, std::atomic<int>& number) {
  number = gettid();
  const int fd = accept(listener, nullptr, nullptr);
  side.say_data("received", recv_to_end(side, fd));
}

// The client of a listener of which it hears, once it is told to come.
int greet_when_told(Side& side) {
  const int port = side.hear();
  side.hear();
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  SAY(connect_to(fd, port));
  send_text(side, fd, "hello");
  return fd;
}

// A thread that sleeps in recv(), for four bytes, from when this is made.
class SleepingReceiver {
 public:
  SleepingReceiver(const Side& side, int fd)
      : thread_([this, &side, fd] {
          number_ = gettid();
          char buffer[4];
          side.say_result("recv", recv(fd, buffer, sizeof(buffer), MSG_WAITALL));
        }) {
    wait_asleep(number_);
  }
  void join() { thread_.join(); }

 private:
  std::atomic<int> number_{0};
  std::thread thread_;
};

void send_four_when_told(Side& side) {
  const int fd = side.connected();
  side.hear();
  send_text(side, fd, "four");
  side.hear();
}

// Both directions at once, each by a thread of its own.
void exchange(Side& side, unsigned seed) {
  const int fd = side.connected();
  std::thread sender([&] {
    send_all(side, fd, pattern(8U << 20U, seed));
    shutdown(fd, SHUT_WR);
  });
  side.say_data("received", recv_to_end(side, fd));
  sender.join();
}

// Two threads wait at one set of epoll; the one that gets the first event goes away with it until
// the other has got the second.
void share_set(Side& side, unsigned events) {
  const int fd = side.connected();
  const int set = epoll_create1(0);
  epoll_event event{};
  event.events = events;
  require(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
  std::atomic<int> got{0};
  std::atomic<int> numbers[2] = {};
  const auto wait = [&](std::atomic<int>& number) {
    number = gettid();
    epoll_event happened{};
    require(epoll_wait(set, &happened, 1, -1) == 1, "epoll_wait");
    recv_all(side, fd, 4);
    if (++got == 1) side.tell();
    for (int looks = 0; got < 2 && looks < kPatienceMs; ++looks) sleep_ms(1);
  };
  std::thread one([&] { wait(numbers[0]); });
  std::thread other([&] { wait(numbers[1]); });
  wait_asleep(numbers[0]);
  wait_asleep(numbers[1]);
  side.tell();
  one.join();
  other.join();
  SAY(got.load());
  close(set);
}

void send_twice(Side& side) {
  const int fd = side.connected();
  for (int i = 0; i < 2; ++i) {
    side.hear();
    send_text(side, fd, "four");
  }
}

}  // namespace

Cases thread_cases() {
  return {
      {"thread.both_directions", [](Side& side) { exchange(side, 1); },
       [](Side& side) { exchange(side, 2); }},

      {"thread.epoll_level", [](Side& side) { share_set(side, EPOLLIN); }, send_twice},
      {"thread.epoll_edge", [](Side& side) { share_set(side, EPOLLIN | EPOLLET); }, send_twice},

      {"thread.several_senders",
       [](Side& side) {
         const int fd = side.connected();
         // They may come in any order, and each may come in parts, so only their sum counts.
         Bytes data;
         Bytes part(1 << 16);
         ssize_t got = 0;
         while ((got = recv(fd, part.data(), part.size(), 0)) > 0) {
           data.insert(data.end(), part.begin(), part.begin() + got);
         }
         long counts[4] = {};
         for (const unsigned char byte : data) counts[byte % 4] += 1;
         for (const long count : counts) SAY(count);
       },
       [](Side& side) {
         const int fd = side.connected();
         std::vector<std::thread> senders;
         senders.reserve(4);
         for (unsigned i = 0; i < 4; ++i) {
           senders.emplace_back([&side, fd, i] {
             for (int k = 0; k < 100; ++k)
               send_all(side, fd, Bytes(5000, static_cast<unsigned char>(i)));
           });
         }
         for (std::thread& sender : senders) sender.join();
       }},

      {"thread.several_connections",
       [](Side& side) {
         const int listener = side.listen_here();
         std::vector<std::thread> threads;
         threads.reserve(6);
         for (int i = 0; i < 6; ++i) {
           threads.emplace_back([&side, fd = accept(listener, nullptr, nullptr)] {
             Bytes part(10000);
             ssize_t got = 0;
             while ((got = recv(fd, part.data(), part.size(), 0)) > 0) {
               send_all(side, fd, Bytes(part.begin(), part.begin() + got));
             }
             close(fd);
           });
         }
         for (std::thread& thread : threads) thread.join();
       },
       [](Side& side) {
         const int port = side.hear();
         bool same[6] = {};
         std::vector<std::thread> threads;
         threads.reserve(6);
         for (unsigned i = 0; i < 6; ++i) {
           threads.emplace_back([&, i] {
             const int fd = socket(AF_INET, SOCK_STREAM, 0);
             require(connect_to(fd, port) == 0, "connect");
             same[i] = true;
             for (unsigned k = 0; k < 50; ++k) {
               const Bytes data = pattern(2000, i * 100 + k);
               send_all(side, fd, data);
               same[i] = same[i] && recv_all(side, fd, data.size()) == data;
             }
             close(fd);
           });
         }
         for (std::thread& thread : threads) thread.join();
         for (const bool good : same) SAY(good);
       }},

      {"thread.close_while_receiving",
       [](Side& side) {
         // Linux: the call that waits keeps the connection until it returns.
         const int fd = side.connected();
         char buffer[8] = {};
         std::atomic<int> number{0};
         std::thread receiver([&] {
           number = gettid();
           SAY(recv(fd, buffer, sizeof(buffer), 0));
         });
         wait_asleep(number);
         SAY(close(fd));
         side.tell();
         receiver.join();
         side.say_data("received", buffer, 4);
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         sleep_ms(30);
         pollfd polled{fd, POLLIN, 0};
         SAY(poll(&polled, 1, 0));
         SAY(send(fd, "late", 4, 0));
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"thread.shutdown_while_receiving",
       [](Side& side) {
         const int fd = side.connected();
         char buffer[8];
         std::atomic<int> number{0};
         std::thread receiver([&] {
           number = gettid();
           SAY(recv(fd, buffer, sizeof(buffer), 0));
         });
         wait_asleep(number);
         const int result = shutdown(fd, SHUT_RDWR);
         receiver.join();
         SAY(result);
       },
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"thread.shutdown_while_polling",
       [](Side& side) {
         const int fd = side.connected();
         pollfd polled{fd, POLLIN | POLLRDHUP, 0};
         std::atomic<int> number{0};
         std::thread poller([&] {
           number = gettid();
           SAY(poll(&polled, 1, kPatienceMs));
         });
         wait_asleep(number);
         const int result = shutdown(fd, SHUT_RD);
         poller.join();
         SAY(result);
         side.say(poll_names(polled.revents));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         SAY(close(fd));
       }},

      {"thread.shutdown_while_sending",
       [](Side& side) {
         const int fd = side.connected();
         fill(side, fd);
         std::atomic<int> number{0};
         std::thread sender([&] {
           number = gettid();
           SAY(until_failure([&] { return send(fd, "x", 1, MSG_NOSIGNAL); }));
         });
         wait_asleep(number);
         const int result = shutdown(fd, SHUT_WR);
         sender.join();
         SAY(result);
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         SAY(close(fd));
       }},

      // A call that has sent a part returns its size, and shutdown leaves no error on the socket.
      {"thread.shutdown_while_sending_much",
       [](Side& side) {
         const int fd = side.connected();
         const Bytes much = pattern(64U << 20U);
         std::atomic<int> number{0};
         long sent = 0;
         std::thread sender([&] {
           number = gettid();
           sent = send(fd, much.data(), much.size(), MSG_NOSIGNAL);
         });
         wait_asleep(number);
         SAY(shutdown(fd, SHUT_WR));
         sender.join();
         SAY(sent > 0 && static_cast<std::size_t>(sent) < much.size());
         say_socket_error(side, fd);
         say_poll(side, fd);
         SAY(send(fd, "x", 1, MSG_NOSIGNAL));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         SAY(close(fd));
       }},

      {"thread.shutdown_while_accepting",
       [](Side& side) {
         const int listener = side.listen_here();
         std::atomic<int> number{0};
         std::thread acceptor([&] {
           number = gettid();
           SAY(accept(listener, nullptr, nullptr));
         });
         wait_asleep(number);
         const int result = shutdown(listener, SHUT_RDWR);
         acceptor.join();
         SAY(result);
       },
       [](Side& side) { side.hear(); }},

      // The acceptor hardly runs until all is connected and sent. No signal may stop it, because
      // that ends the call, and with it the listener.
      {"thread.close_while_accepting_late",
       [](Side& side) {
         const int listener = side.listen_here();
         std::atomic<int> number{0};
         stay_on_this_processor();
         std::thread acceptor([&] {
           const sched_param none{};
           require(sched_setscheduler(0, SCHED_IDLE, &none) == 0, "sched_setscheduler");
           accept_and_receive(side, listener, number);
         });
         wait_asleep(number);
         SAY(close(listener));
         side.tell();
         keep_busy_until_told();
         side.hear();
         acceptor.join();
       },
       [](Side& side) {
         const int fd = greet_when_told(side);
         side.tell();
         SAY(close(fd));
       }},

      {"thread.close_while_accepting",
       [](Side& side) {
         const int listener = side.listen_here();
         std::atomic<int> number{0};
         std::thread acceptor([&] { accept_and_receive(side, listener, number); });
         wait_asleep(number);
         SAY(close(listener));
         side.tell();
         acceptor.join();
       },
       [](Side& side) { greet_when_told(side); }},

      {"thread.cancelled_in_receive",
       [](Side& side) {
         const int fd = side.connected();
         say_cancelled(side, fd, [](int descriptor) {
           char buffer[8];
           recv(descriptor, buffer, sizeof(buffer), 0);
         });
         say_cancelled(side, fd, [](int descriptor) {
           char buffer[8];
           require(read(descriptor, buffer, sizeof(buffer)) == 0, "read");
         });
         say_cancelled(side, fd, [](int descriptor) {
           pollfd polled{descriptor, POLLIN, 0};
           poll(&polled, 1, kPatienceMs);
         });
         side.tell();
         // The connection is as good as before.
         side.say_data("received", recv_all(side, fd, 5));
         send_text(side, fd, "answer");
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         send_text(side, fd, "hello");
         side.say_data("received", recv_to_end(side, fd));
       }},

      {"thread.cancelled_in_send",
       [](Side& side) {
         const int fd = side.connected();
         fill(side, fd);
         say_cancelled(side, fd, [](int descriptor) {
           while (send(descriptor, "x", 1, 0) == 1) {
           }
         });
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         SAY(close(fd));
       }},

      {"thread.number_used_again_while_receiving",
       [](Side& side) {
         // A thread that wakes late from a closed connection takes nothing of the next one, which
         // has its number.
         const int listener = side.listen_here();
         int whole = 0;
         for (int i = 0; i < 20; ++i) {
           const int fd = accept(listener, nullptr, nullptr);
           std::atomic<int> number{0};
           std::thread receiver([&, fd] {
             number = gettid();
             char byte = 0;
             recv(fd, &byte, 1, 0);
           });
           wait_asleep(number);
           side.tell();
           side.hear();
           shutdown(fd, SHUT_RDWR);
           close(fd);
           const int next = accept(listener, nullptr, nullptr);
           receiver.join();
           whole += recv_to_end(side, next) == pattern(1000) ? 1 : 0;
           close(next);
         }
         SAY(whole);
       },
       [](Side& side) {
         const int port = side.hear();
         for (int i = 0; i < 20; ++i) {
           const int first = socket(AF_INET, SOCK_STREAM, 0);
           require(connect_to(first, port) == 0, "connect");
           side.hear();
           // Of which nothing is carried (docs/sockets.md).
           const int next = socket(AF_INET, SOCK_STREAM, 0);
           const int mark = 2;
           require(setsockopt(next, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof(mark)) == 0, "option");
           require(connect_to(next, port) == 0, "connect");
           send_all(side, next, pattern(1000));
           shutdown(next, SHUT_WR);
           side.tell();
           char byte = 0;
           recv(next, &byte, 1, 0);
           close(next);
           close(first);
         }
       }},

      {"thread.interrupted_beside_another",
       [](Side& side) {
         // Two wait at one connection, and a signal is for the second of them.
         const int fd = side.connected();
         fill(side, fd);
         struct sigaction action {};
         action.sa_handler = [](int) {};
         require(sigaction(SIGUSR1, &action, nullptr) == 0, "sigaction");
         SleepingReceiver receiver(side, fd);
         std::atomic<int> sends{0};
         std::atomic<bool> over{false};
         std::thread sender([&] {
           sends = gettid();
           SAY(until_failure([&] { return send(fd, "x", 1, 0); }));
           over = true;
         });
         wait_asleep(sends);
         // Again, in case that it had not begun to wait.
         for (int i = 0; i < kPatienceMs / 10 && !over; ++i) {
           pthread_kill(sender.native_handle(), SIGUSR1);
           sleep_ms(10);
         }
         SAY(over.load());
         if (over) sender.join();
         side.tell();
         receiver.join();
         side.tell();
         if (sender.joinable()) sender.detach();
       },
       send_four_when_told},

      {"thread.cancelled_beside_another",
       [](Side& side) {
         const int fd = side.connected();
         fill(side, fd);
         SleepingReceiver receiver(side, fd);
         say_cancelled(side, fd, [](int descriptor) {
           while (send(descriptor, "x", 1, 0) == 1) {
           }
         });
         side.tell();
         receiver.join();
         side.tell();
       },
       send_four_when_told},

      {"thread.cancelled_in_accept",
       [](Side& side) {
         // MP-SPDZ ends its listening thread so.
         const int listener = side.listen_here();
         say_cancelled(side, listener,
                       [](int descriptor) { accept(descriptor, nullptr, nullptr); });
         side.tell();
         const int fd = accept(listener, nullptr, nullptr);
         side.say_data("received", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int port = side.hear();
         side.hear();
         const int fd = socket(AF_INET, SOCK_STREAM, 0);
         SAY(connect_to(fd, port));
         send_text(side, fd, "hello");
       }},

      {"thread.cancel_disabled",
       [](Side& side) {
         const int fd = side.connected();
         std::atomic<int> number{0};
         std::thread receiver([&] {
           number = gettid();
           pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
           side.say_data("received", recv_all(side, fd, 5));
         });
         wait_asleep(number);
         const int result = pthread_cancel(receiver.native_handle());
         side.tell();
         receiver.join();
         SAY(result);
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         send_text(side, fd, "hello");
         side.say_data("rest", recv_to_end(side, fd));
       }},
  };
}

}  // namespace posix_cases
