// Waiting for handles of leat/c.h, alone and among the kernel's descriptors, and what threads and
// descriptors do to each other. tests/posix compares the single calls with TCP.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "capi/text.h"
#include "leat/c.h"
#include "support/devices.h"
#include "support/leaks.h"
#include "support/scale.h"
#include "support/scratch.h"

namespace leat::detail {
namespace {

int patience_ms() { return poll_timeout_ms(hang_deadline()); }

// A listener and connections to it, both ends in this process.
class CApiPairs : public testing::TestWithParam<std::string> {
 protected:
  struct Pair {
    int near = -1;
    int far = -1;
  };

  CApiPairs() : device_("LEAT_DEVICE", GetParam()) {
    const std::string host = device_address(GetParam());
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (!host.empty()) {
      EXPECT_EQ(inet_pton(AF_INET, host.c_str(), &address_.sin_addr), 1);
    }
    listener_ = leat_socket(AF_INET, SOCK_STREAM, 0);
    socklen_t bytes = sizeof address_;
    auto* name = reinterpret_cast<sockaddr*>(&address_);
    EXPECT_EQ(leat_bind(listener_, name, bytes), 0) << leat_last_error();
    EXPECT_EQ(leat_listen(listener_, 8), 0) << leat_last_error();
    EXPECT_EQ(leat_getsockname(listener_, name, &bytes), 0) << leat_last_error();
  }
  ~CApiPairs() override {
    EXPECT_EQ(leat_close(listener_), 0);
    for (const int handle : handles_) leat_close(handle);
  }

  int connect(int flags = 0) {
    const int handle = leat_socket(AF_INET, SOCK_STREAM | flags, 0);
    connected_ = leat_connect(handle, reinterpret_cast<sockaddr*>(&address_), sizeof address_);
    return handle;
  }
  Pair pair() {
    Pair made;
    made.near = connect();
    EXPECT_EQ(connected_, 0) << leat_last_error();
    made.far = leat_accept(listener_, nullptr, nullptr);
    EXPECT_GE(made.far, 0) << leat_last_error();
    handles_.insert(handles_.end(), {made.near, made.far});
    return made;
  }
  // That handle is closed by the test.
  void leave(int handle) { std::erase(handles_, handle); }

  const ScratchVariable device_;
  // The guest with kernel RDMA is slow.
  const ScratchVariable handshake_{"LEAT_HANDSHAKE_TIMEOUT_MS", "60000"};
  const ScratchVariable connecting_{"LEAT_CONNECT_TIMEOUT_MS", "60000"};
  sockaddr_in address_{};
  int listener_ = -1;
  int connected_ = -1;
  std::vector<int> handles_;
};

std::string text_or_errno(int handle, int flags = 0) {
  char text[64];
  const ssize_t got = leat_recv(handle, text, sizeof text, flags);
  return got < 0 ? "errno " + std::to_string(errno)
                 : std::string(text, static_cast<std::size_t>(got));
}

short poll_one(int handle, short events, int timeout_ms) {
  pollfd entry{handle, events, 0};
  leat_poll(&entry, 1, timeout_ms);
  return entry.revents;
}

// A handle, a pipe, a timer and a listener in one set, each ready in turn, and room to send.
TEST_P(CApiPairs, OneEpollSetForAll) {
  const Pair made = pair();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd read_end(ends[0]);
  const Fd write_end(ends[1]);
  const Fd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  const int set = leat_epoll_create1(EPOLL_CLOEXEC);
  ASSERT_GE(set, 0);
  for (const int fd : {made.far, read_end.get(), timer.get(), listener_}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    ASSERT_EQ(leat_epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0) << leat_last_error();
  }
  const auto next = [&] {
    epoll_event events[4];
    const int count = leat_epoll_wait(set, events, 4, patience_ms());
    EXPECT_EQ(count, 1);
    return count == 1 ? events[0].data.fd : -1;
  };
  epoll_event none;
  EXPECT_EQ(leat_epoll_wait(set, &none, 1, 0), 0);
  send_text(made.near, "x");
  EXPECT_EQ(next(), made.far);
  EXPECT_EQ(next(), made.far);  // level-triggered
  EXPECT_EQ(text_or_errno(made.far), "x");
  EXPECT_EQ(leat_write(ends[1], "y", 1), 1);
  EXPECT_EQ(next(), read_end.get());
  char byte = 0;
  EXPECT_EQ(leat_read(ends[0], &byte, 1), 1);
  itimerspec soon{};
  soon.it_value.tv_nsec = 1'000'000;
  ::timerfd_settime(timer.get(), 0, &soon, nullptr);
  EXPECT_EQ(next(), timer.get());
  std::uint64_t expirations = 0;
  EXPECT_EQ(leat_read(timer.get(), &expirations, sizeof expirations), 8);
  handles_.push_back(connect());
  EXPECT_EQ(next(), listener_);
  handles_.push_back(leat_accept(listener_, nullptr, nullptr));
  EXPECT_EQ(leat_epoll_wait(set, &none, 1, 0), 0);
  epoll_event out{};
  out.events = EPOLLOUT;
  out.data.fd = made.far;
  EXPECT_EQ(leat_epoll_ctl(set, EPOLL_CTL_MOD, made.far, &out), 0);
  EXPECT_EQ(next(), made.far);
  EXPECT_EQ(leat_close(set), 0);
}

// What poll says of room is what send does, until the peer reads.
TEST_P(CApiPairs, RoomIsPolled) {
  const Pair made = pair();
  EXPECT_EQ(poll_one(made.near, POLLIN | POLLOUT, 0), POLLOUT);
  const std::string block(100'000, 'b');
  std::size_t sent = 0;
  while ((poll_one(made.near, POLLOUT, 5) & POLLOUT) != 0) {
    const ssize_t now = leat_send(made.near, block.data(), block.size(), MSG_DONTWAIT);
    // Where room cannot be asked for, poll says that it is time to try.
    if (now == -1 && errno == EAGAIN && GetParam() == "tcp") break;
    ASSERT_GT(now, 0) << leat_last_error();
    sent += static_cast<std::size_t>(now);
  }
  std::thread reader([&] {
    std::string all(sent, '\0');
    EXPECT_EQ(leat_recv(made.far, all.data(), all.size(), MSG_WAITALL), std::ssize(all));
  });
  EXPECT_EQ(poll_one(made.near, POLLOUT, patience_ms()), POLLOUT);
  reader.join();
}

// Unread bytes use up their sender's room, also if they are sent one by one and the receiver polls
// all the time.
TEST_P(CApiPairs, UnreadBytesHoldUpTheSender) {
  const Pair made = pair();
  const int little = 1 << 16;  // in the kernel, for device tcp
  EXPECT_EQ(leat_setsockopt(made.near, SOL_SOCKET, SO_SNDBUF, &little, sizeof little), 0);
  EXPECT_EQ(leat_setsockopt(made.far, SOL_SOCKET, SO_RCVBUF, &little, sizeof little), 0);
  constexpr int kMost = 4'000'000;
  int sent = 0;
  for (int refused = 0; refused < 3 && sent < kMost;) {
    if (leat_send(made.near, "x", 1, MSG_DONTWAIT) == 1) {
      refused = 0;
      ++sent;
      if (sent % 64 != 0) continue;
    } else {
      ASSERT_EQ(errno, EAGAIN) << leat_last_error();
      ++refused;
    }
    int readable = 0;
    EXPECT_EQ(leat_ioctl(made.far, FIONREAD, &readable), 0);
    EXPECT_LE(readable, sent);
    EXPECT_EQ(poll_one(made.far, POLLIN | POLLRDHUP, patience_ms()), POLLIN);
  }
  EXPECT_LT(sent, kMost);
  // Nothing of it waits for more than that the sender waits for the answer.
  std::thread reader([&] {
    std::string all(static_cast<std::size_t>(sent), '\0');
    EXPECT_EQ(leat_recv(made.far, all.data(), all.size(), MSG_WAITALL), sent);
    send_text(made.far, "all read");
  });
  EXPECT_EQ(poll_one(made.near, POLLIN, patience_ms()), POLLIN);
  reader.join();
}

// One has an event and does not come back: the next event is another's.
TEST_P(CApiPairs, ThreadsWaitAtOneEpollSet) {
  const Pair made = pair();
  const int set = leat_epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN;
  ASSERT_EQ(leat_epoll_ctl(set, EPOLL_CTL_ADD, made.far, &event), 0) << leat_last_error();
  std::atomic<int> taken = 0;
  const auto take_one = [&] {
    epoll_event told;
    char byte = 0;
    do {
      if (leat_epoll_wait(set, &told, 1, patience_ms()) != 1) return;
    } while (leat_recv(made.far, &byte, 1, MSG_DONTWAIT) != 1);
    ++taken;
  };
  std::thread one(take_one);
  std::thread other(take_one);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // most probably they sleep now
  send_text(made.near, "x");
  while (taken == 0) std::this_thread::yield();
  send_text(made.near, "y");
  one.join();
  other.join();
  EXPECT_EQ(taken, 2);
  EXPECT_EQ(leat_close(set), 0);
}

// The system's own epoll sees a handle, also one that it had before it connected.
TEST_P(CApiPairs, NativeEpollSeesWhatCanBeRead) {
  const Fd set(::epoll_create1(EPOLL_CLOEXEC));
  const int near = leat_socket(AF_INET, SOCK_STREAM, 0);
  handles_.push_back(near);
  epoll_event event{};
  event.events = EPOLLIN;
  ASSERT_EQ(::epoll_ctl(set.get(), EPOLL_CTL_ADD, near, &event), 0);
  ASSERT_EQ(leat_connect(near, reinterpret_cast<sockaddr*>(&address_), sizeof address_), 0);
  const int far = leat_accept(listener_, nullptr, nullptr);
  handles_.push_back(far);
  for (int i = 0; i < 100; ++i) {
    // Until EAGAIN, then by the kernel.
    EXPECT_EQ(text_or_errno(near, MSG_DONTWAIT), "errno " + std::to_string(EAGAIN));
    std::thread sender([&] { send_text(far, "word"); });
    EXPECT_EQ(::epoll_wait(set.get(), &event, 1, patience_ms()), 1);
    sender.join();
    EXPECT_EQ(text_or_errno(near, MSG_DONTWAIT), "word");
  }
  EXPECT_EQ(leat_shutdown(far, SHUT_WR), 0);
  EXPECT_EQ(text_or_errno(near), "");
  EXPECT_EQ(::epoll_wait(set.get(), &event, 1, 0), 1);
}

TEST_P(CApiPairs, ConnectsWithoutBlocking) {
  const int near = connect(SOCK_NONBLOCK);
  handles_.push_back(near);
  EXPECT_EQ(connected_, -1);
  const int idle = 77;
  EXPECT_EQ(leat_setsockopt(near, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle), 0);
  EXPECT_EQ(poll_one(near, POLLOUT, patience_ms()), POLLOUT);
  int error = -1;
  socklen_t bytes = sizeof error;
  EXPECT_EQ(leat_getsockopt(near, IPPROTO_TCP, TCP_KEEPIDLE, &error, &bytes), 0);
  EXPECT_EQ(error, idle);  // leat's handshake had its own
  EXPECT_EQ(leat_getsockopt(near, SOL_SOCKET, SO_ERROR, &error, &bytes), 0);
  EXPECT_EQ(error, 0);
  EXPECT_EQ(leat_send(near, "x", 1, 0), 1) << leat_last_error();
  handles_.push_back(leat_accept(listener_, nullptr, nullptr));
  EXPECT_EQ(text_or_errno(handles_.back()), "x");
}

// As with TCP, the call goes on, and the connection ends after it.
TEST_P(CApiPairs, CloseDoesNotDisturbReceivingInAnotherThread) {
  const Pair made = pair();
  leave(made.far);
  std::atomic<bool> begun = false;
  std::thread receiver([&] {
    begun = true;
    EXPECT_EQ(text_or_errno(made.far), "late");
  });
  while (!begun) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // most probably it sleeps now
  EXPECT_EQ(leat_close(made.far), 0);
  EXPECT_EQ(text_or_errno(made.far), "errno " + std::to_string(EBADF));
  send_text(made.near, "late");
  receiver.join();
  EXPECT_EQ(text_or_errno(made.near), "");
}

TEST_P(CApiPairs, ThreadsSendReceiveAndPollOneHandle) {
  const Pair made = pair();
  constexpr int kWords = 2000;
  const auto send_words = [](int handle) {
    for (int i = 0; i < kWords; ++i) send_text(handle, "word");
  };
  std::atomic<std::size_t> received = 0;
  const auto receive = [&] {
    char bytes[1000];
    while (true) {
      const ssize_t got = leat_recv(made.far, bytes, sizeof bytes, 0);
      ASSERT_GE(got, 0) << leat_last_error();
      if (got == 0) return;
      received += static_cast<std::size_t>(got);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) threads.emplace_back([&] { send_words(made.near); });
  for (int i = 0; i < 2; ++i) threads.emplace_back(receive);
  threads.emplace_back([&] {
    while ((poll_one(made.far, POLLIN | POLLRDHUP, 1) & POLLRDHUP) == 0) {
    }
  });
  threads[0].join();
  threads[1].join();
  EXPECT_EQ(leat_shutdown(made.near, SHUT_WR), 0);
  for (std::size_t i = 2; i < threads.size(); ++i) threads[i].join();
  EXPECT_EQ(received, 2u * kWords * 4);
}

// All descriptors of a connection are the same, and it lasts as long as one does.
TEST_P(CApiPairs, DescriptorsAreDuplicated) {
  const Pair made = pair();
  const int copy = leat_fcntl(made.near, F_DUPFD_CLOEXEC, 100);
  ASSERT_GE(copy, 100) << leat_last_error();
  EXPECT_EQ(leat_fcntl(copy, F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(leat_fcntl(copy, F_SETFL, O_NONBLOCK), 0);
  EXPECT_EQ(leat_fcntl(made.near, F_GETFL), O_RDWR | O_NONBLOCK);
  leave(made.near);
  EXPECT_EQ(leat_close(made.near), 0);
  send_text(copy, "x");
  EXPECT_EQ(text_or_errno(made.far), "x");
  EXPECT_EQ(leat_close(copy), 0);
  EXPECT_EQ(text_or_errno(made.far), "");
}

// Also of a process whose other threads are inside of calls at that moment.
TEST_P(CApiPairs, ForkedChildrenCanOnlyClose) {
  const Pair made = pair();
  const int set = leat_epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN;
  ASSERT_EQ(leat_epoll_ctl(set, EPOLL_CTL_ADD, made.far, &event), 0) << leat_last_error();
  std::atomic<bool> over = false;
  std::thread busy([&] {
    epoll_event told;
    while (!over) {
      leat_epoll_wait(set, &told, 1, 0);
      leat_close(leat_fcntl(made.far, F_DUPFD, 0));
    }
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const bool refused = leat_send(made.near, "x", 1, 0) == -1 && errno == EOPNOTSUPP &&
                           poll_one(made.far, POLLIN, 0) == 0 && errno == EOPNOTSUPP;
      const bool closed = leat_close(made.near) == 0 && leat_close(made.far) == 0;
      std::_Exit(refused && closed && leat_close(set) == 0 ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  over = true;
  busy.join();
  send_text(made.near, "still here");
  EXPECT_EQ(text_or_errno(made.far), "still here");
  EXPECT_EQ(leat_close(set), 0);
}

std::vector<std::string> devices_and_tcp() {
  std::vector<std::string> devices = test_devices();
  devices.emplace_back("tcp");
  return devices;
}

INSTANTIATE_TEST_SUITE_P(Devices, CApiPairs, testing::ValuesIn(devices_and_tcp()),
                         [](const auto& parameters) { return device_label(parameters.param); });

// MPC programs try every millisecond until the other party listens.
TEST(CApiShortages, RefusedConnectsLeaveNothingBehind) {
  const int reserved = leat_socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* name = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(leat_bind(reserved, name, bytes), 0);
  ASSERT_EQ(leat_getsockname(reserved, name, &bytes), 0);
  const auto refused = [&](int handle) {
    EXPECT_EQ(leat_connect(handle, name, sizeof address), -1);
    EXPECT_EQ(errno, ECONNREFUSED);
  };
  const int again = leat_socket(AF_INET, SOCK_STREAM, 0);
  refused(again);
  const Holdings before = count_holdings();
  for (int i = 0; i < 500; ++i) {
    const int handle = leat_socket(AF_INET, SOCK_STREAM, 0);
    refused(handle);
    EXPECT_EQ(leat_close(handle), 0);
    refused(again);
  }
  expect_no_more_than(before, std::size_t{4} << 20);
  EXPECT_EQ(leat_close(again), 0);
  EXPECT_EQ(leat_close(reserved), 0);
}

#ifndef __SANITIZE_ADDRESS__  // its own checks need descriptors
TEST(CApiShortages, TooFewDescriptorsAreEMFILE) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit little{0, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &little), 0);
  EXPECT_EQ(leat_socket(AF_INET, SOCK_STREAM, 0), -1);
  EXPECT_EQ(errno, EMFILE);
  EXPECT_EQ(leat_epoll_create1(0), -1);
  EXPECT_EQ(errno, EMFILE);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  const int handle = leat_socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_GE(handle, 0) << leat_last_error();
  EXPECT_EQ(leat_close(handle), 0);
}
#endif

}  // namespace
}  // namespace leat::detail
