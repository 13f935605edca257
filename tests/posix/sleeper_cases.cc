// A thread asleep in a set of epoll, into which another puts the first sockets: it gets what the
// program asked for, under the program's own data, and nothing else.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "case.h"

namespace posix_cases {
namespace {

// A thread that makes one call that sleeps, from when this is made.
class Sleeper {
 public:
  explicit Sleeper(std::function<void()> call)
      : thread_([this, call = std::move(call)] {
          number_ = gettid();
          call();
          awake_ = true;
          // Still there to be looked at.
          while (!joined_) sleep_ms(1);
        }) {
    wait_asleep(number_);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ~Sleeper() {
    joined_ = true;
    thread_.join();
  }

  // Whether it has woken of what happened just now, once it sleeps again where it has not.
  bool has_woken() const {
    for (int asleep = 0; asleep < 3 && !awake_; ++asleep) wait_asleep(number_);
    return awake_;
  }
  void await() const {
    for (int looks = 0; !awake_ && looks < kPatienceMs; ++looks) sleep_ms(1);
    require(awake_, "a sleeping thread to wake");
  }

 private:
  std::atomic<int> number_{0};
  std::atomic<bool> awake_{false};
  std::atomic<bool> joined_{false};
  std::thread thread_;
};

// The calls that sleep at a set, each of which says what it got.
void sleep_in_epoll(const Side& side, int set) {
  std::array<epoll_event, 4> events{};
  const int count = epoll_wait(set, events.data(), 4, kPatienceMs);
  side.say_result("epoll_wait", count);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    side.say(std::to_string(event.data.u64) + ": " + epoll_names(event.events));
  }
}

void sleep_in_poll(const Side& side, int set) {
  pollfd polled{set, POLLIN, 0};
  SAY(poll(&polled, 1, kPatienceMs));
  side.say(poll_names(polled.revents));
}

void sleep_in_select(const Side& side, int set) {
  fd_set readable;
  FD_ZERO(&readable);
  FD_SET(set, &readable);
  timeval patience{kPatienceMs / 1000, 0};
  SAY(select(set + 1, &readable, nullptr, nullptr, &patience));
  SAY(FD_ISSET(set, &readable));
}

void sleep_in_outer(const Side& side, int set) {
  const int outer = epoll_create1(0);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 99;
  require(epoll_ctl(outer, EPOLL_CTL_ADD, set, &event) == 0, "epoll_ctl");
  sleep_in_epoll(side, outer);
  close(outer);
}

// Says nothing: the sleeping thread may speak at the same time.
void add(int set, int fd, unsigned events, std::uint64_t data) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  require(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
}

using Sleep = void (*)(const Side&, int);

// A connection comes into the empty set, and only later what it is asked for.
template <Sleep kSleep>
void add_connection(Side& side) {
  const int fd = side.connected();
  const int set = epoll_create1(0);
  {
    const Sleeper sleeper([&] { kSleep(side, set); });
    add(set, fd, EPOLLIN, 1234567);
    SAY(sleeper.has_woken());
    side.tell();
    sleeper.await();
  }
  side.say_data("received", recv_all(side, fd, 4));
  side.tell();
}

void send_four_when_told(Side& side) {
  const int fd = side.connected();
  side.hear();
  send_text(side, fd, "four");
  side.hear();
}

// A listener comes into the empty set.
template <Sleep kSleep>
void add_listener(Side& side) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = meeting_place(0);
  socklen_t length = sizeof(address);
  require(bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0, "bind");
  require(listen(listener, 4) == 0, "listen");
  require(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0,
          "getsockname");
  const int set = epoll_create1(0);
  {
    const Sleeper sleeper([&] { kSleep(side, set); });
    add(set, listener, EPOLLIN, 1234567);
    SAY(sleeper.has_woken());
    side.tell(ntohs(address.sin_port));
    sleeper.await();
  }
  const int fd = accept(listener, nullptr, nullptr);
  side.say_data("received", recv_to_end(side, fd));
}

void connect_and_greet(Side& side) {
  const int fd = side.connect_there();
  send_text(side, fd, "hello");
  SAY(close(fd));
}

// A socket comes into the empty set that connects then, or is connecting.
void connect_in_set(Side& side, bool added_first) {
  const int port = side.hear();
  const int set = epoll_create1(0);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  {
    const Sleeper sleeper([&] { sleep_in_epoll(side, set); });
    if (added_first) {
      // Says at once that it is not connected; with one shot, only that.
      add(set, fd, EPOLLIN | EPOLLOUT | EPOLLONESHOT, 1234567);
      sleeper.await();
      SAY(connect_to(fd, port));
    } else {
      SAY(connect_to(fd, port));
      add(set, fd, EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP, 1234567);
      sleeper.await();
    }
  }
  {
    // The set is not empty any more, but another thread sleeps there.
    wait_for(side, fd, POLLOUT);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLONESHOT;
    event.data.u64 = 7654321;
    const Sleeper sleeper([&] {
      std::array<epoll_event, 1> events{};
      // The edge of having connected may still be there.
      do {
        require(epoll_wait(set, events.data(), 1, kPatienceMs) == 1, "epoll_wait");
      } while (events[0].data.u64 == 1234567 && (events[0].events & EPOLLIN) == 0);
      SAY(events[0].data.u64);
      side.say(epoll_names(events[0].events));
    });
    require(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0, "epoll_ctl");
    SAY(sleeper.has_woken());
    side.tell();
    sleeper.await();
  }
  side.say_data("received", recv_all(side, fd, 4));
}

void answer_when_told(Side& side) {
  const int listener = side.listen_here();
  const int fd = accept(listener, nullptr, nullptr);
  side.hear();
  send_text(side, fd, "four");
  side.say_data("rest", recv_to_end(side, fd));
}

// What a thread of a program such as gRPC sees, which never looks up from its set.
struct Seen {
  std::atomic<int> foreign{0};  // events of data that nobody gave
  std::atomic<int> unasked{0};  // events that nobody asked for
};

constexpr int kReconnects = 40;

// A client that reconnects while its poller sleeps in a set that is empty each time; every other
// time nobody listens.
void reconnect(Side& side) {
  const int good_port = side.hear();
  // Bound, and listening to nobody.
  const int keeper = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = meeting_place(0);
  socklen_t length = sizeof(address);
  require(bind(keeper, reinterpret_cast<sockaddr*>(&address), length) == 0, "bind");
  require(getsockname(keeper, reinterpret_cast<sockaddr*>(&address), &length) == 0, "getsockname");
  const int set = epoll_create1(0);
  const int wake = eventfd(0, EFD_NONBLOCK);
  constexpr std::uint64_t kStop = 1;
  constexpr std::uint64_t kFirst = 0x7f0000000000;
  std::atomic<std::uint64_t> expected{0};
  std::atomic<unsigned> happened{0};
  std::atomic<int> number{0};
  Seen seen;
  std::thread poller([&] {
    number = gettid();
    for (;;) {
      std::array<epoll_event, 8> events{};
      const int count = epoll_wait(set, events.data(), 8, -1);
      for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        if (event.data.u64 == kStop) return;
        constexpr unsigned kAsked = EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP;
        if (event.data.u64 < kFirst || event.data.u64 > expected) ++seen.foreign;
        if ((event.events & ~kAsked) != 0) ++seen.unasked;
        if (event.data.u64 == expected) happened |= event.events;
      }
    }
  });
  int refused = 0;
  int answered = 0;
  for (int i = 0; i < kReconnects; ++i) {
    wait_asleep(number);
    happened = 0;
    expected = kFirst + static_cast<unsigned>(i);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    connect_to(fd, i % 2 == 0 ? good_port : ntohs(address.sin_port));
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    event.data.u64 = expected;
    require(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    const unsigned wanted = i % 2 == 0 ? EPOLLIN : EPOLLERR;
    for (int looks = 0; (happened & wanted) == 0 && looks < kPatienceMs; ++looks) sleep_ms(1);
    int error = 0;
    length = sizeof(error);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    char buffer[4];
    if (error == ECONNREFUSED) ++refused;
    if (error == 0 && recv(fd, buffer, 4, 0) == 4) ++answered;
    close(fd);
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kStop;
  require(epoll_ctl(set, EPOLL_CTL_ADD, wake, &event) == 0, "epoll_ctl");
  require(eventfd_write(wake, 1) == 0, "eventfd");
  poller.join();
  SAY(refused);
  SAY(answered);
  SAY(seen.foreign.load());
  SAY(seen.unasked.load());
}

void greet_each(Side& side) {
  const int listener = side.listen_here();
  for (int i = 0; i < kReconnects / 2; ++i) {
    const int fd = accept(listener, nullptr, nullptr);
    send_text(side, fd, "four");
    Bytes rest = recv_to_end(side, fd);
    if (!rest.empty()) side.say_data("rest", rest);
    close(fd);
  }
}

constexpr int kThreads = 4;
constexpr int kConnectionsOfEach = 15;
constexpr int kEchoes = 5;

// Four threads at one set, with one shot for everything in it.
class OneShotServer {
 public:
  explicit OneShotServer(int listener) : listener_(listener) {
    set_blocking(listener, false);
    control(EPOLL_CTL_ADD, listener, EPOLLIN);
    control(EPOLL_CTL_ADD, stop_, EPOLLIN);
    for (std::thread& thread : threads_) thread = std::thread([this] { serve(); });
  }
  OneShotServer(const OneShotServer&) = delete;
  OneShotServer& operator=(const OneShotServer&) = delete;
  ~OneShotServer() {
    for (const int fd : {set_, stop_}) close(fd);
  }

  void say(const Side& side) {
    for (std::thread& thread : threads_) thread.join();
    SAY(served_.load());
    SAY(echoed_.load());
    SAY(seen_.foreign.load());
    SAY(seen_.unasked.load());
  }

 private:
  static constexpr std::uint64_t kMark = 0x5500000000;

  void control(int operation, int fd, unsigned events) {
    epoll_event event{};
    event.events = events | (fd == stop_ ? 0U : static_cast<unsigned>(EPOLLONESHOT));
    event.data.u64 = kMark | static_cast<unsigned>(fd);
    require(epoll_ctl(set_, operation, fd, &event) == 0, "epoll_ctl");
  }

  void serve() {
    for (;;) {
      epoll_event event{};
      if (epoll_wait(set_, &event, 1, -1) != 1) continue;
      if ((event.data.u64 & ~std::uint64_t{0xffffff}) != kMark) {
        ++seen_.foreign;
        continue;
      }
      const int fd = static_cast<int>(event.data.u64 & 0xffffff);
      if (fd == stop_) return;
      constexpr unsigned kAsked = EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP;
      if ((event.events & ~kAsked) != 0 || event.events == 0) ++seen_.unasked;
      if (fd == listener_) {
        accept_all();
      } else {
        answer(fd);
      }
    }
  }

  void accept_all() {
    int fd = -1;
    while ((fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK)) >= 0)
      control(EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLRDHUP);
    control(EPOLL_CTL_MOD, listener_, EPOLLIN);
  }

  void answer(int fd) {
    char byte = 0;
    ssize_t got = 0;
    while ((got = recv(fd, &byte, 1, 0)) == 1)
      if (send(fd, &byte, 1, 0) == 1) ++echoed_;
    if (got < 0 && errno == EAGAIN) {
      control(EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLRDHUP);
      return;
    }
    close(fd);
    if (++served_ == kThreads * kConnectionsOfEach)
      require(eventfd_write(stop_, 1) == 0, "eventfd_write");
  }

  int listener_;
  int set_ = epoll_create1(0);
  int stop_ = eventfd(0, 0);
  Seen seen_;
  std::atomic<int> served_{0};
  std::atomic<int> echoed_{0};
  std::array<std::thread, kThreads> threads_;
};

void ask_server(Side& side) {
  const int port = side.hear();
  std::atomic<int> echoed{0};
  std::array<std::thread, kThreads> threads;
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      for (int i = 0; i < kConnectionsOfEach; ++i) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        require(connect_to(fd, port) == 0, "connect");
        for (int turn = 0; turn < kEchoes; ++turn) {
          char byte = static_cast<char>(turn);
          if (send(fd, &byte, 1, 0) == 1 && recv(fd, &byte, 1, 0) == 1 && byte == turn) ++echoed;
        }
        close(fd);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  SAY(echoed.load());
}

}  // namespace

Cases sleeper_cases() {
  return {
      {"sleeper.connection", add_connection<sleep_in_epoll>, send_four_when_told},
      {"sleeper.connection_poll", add_connection<sleep_in_poll>, send_four_when_told},
      {"sleeper.connection_select", add_connection<sleep_in_select>, send_four_when_told},
      {"sleeper.connection_outer", add_connection<sleep_in_outer>, send_four_when_told},
      {"sleeper.listener", add_listener<sleep_in_epoll>, connect_and_greet},
      {"sleeper.listener_poll", add_listener<sleep_in_poll>, connect_and_greet},
      {"sleeper.listener_select", add_listener<sleep_in_select>, connect_and_greet},
      {"sleeper.listener_outer", add_listener<sleep_in_outer>, connect_and_greet},
      {"sleeper.connecting", answer_when_told, [](Side& side) { connect_in_set(side, false); }},
      {"sleeper.connects_later", answer_when_told, [](Side& side) { connect_in_set(side, true); }},
      {"sleeper.reconnecting", greet_each, reconnect},
      {"sleeper.one_shot_threads",
       [](Side& side) {
         OneShotServer server(side.listen_here(64));
         server.say(side);
       },
       ask_server},
  };
}

}  // namespace posix_cases
