// Connections that are closed past the C library's close(), and what takes their numbers next: a
// file of that number is a file.
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "bare_call.h"
#include "case.h"
#include "epoll_set.h"

namespace posix_cases {
namespace {

// Closes a descriptor; what is opened next gets its number, because the processes of these cases
// leave no lower one free.
using Close = void (*)(int fd);

// As libuv does.
void close_by_syscall(int fd) { require(syscall(SYS_close, fd) == 0, "syscall(SYS_close)"); }

void close_bare(int fd) { require(bare_call(SYS_close, fd) == 0, "SYS_close"); }

void close_by_library(int fd) {
  void* library = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  require(library != nullptr, "dlopen");
  void* found = dlsym(library, "close");
  require(found != nullptr, "dlsym");
  require((reinterpret_cast<int (*)(int)>(found))(fd) == 0, "libc's close");
}

void close_range_by_syscall(int fd) {
  require(syscall(SYS_close_range, fd, fd, 0) == 0, "syscall(SYS_close_range)");
}

void close_range_bare(int fd) {
  require(bare_call(SYS_close_range, fd, fd) == 0, "SYS_close_range");
}

// The number is another file's at once, and free only after that.
template <typename Duplicate>
void close_by_duplicate(int fd, const Duplicate& duplicate) {
  const int other = open("/dev/null", O_RDWR);
  require(other > fd, "open");
  require(duplicate(other) == fd, "the copy");
  char byte = 0;
  require(::write(fd, "x", 1) == 1 && ::read(fd, &byte, 1) == 0, "/dev/null");
  require(::close(other) == 0 && ::close(fd) == 0, "close");
}

void dup3_by_syscall(int fd) {
  close_by_duplicate(fd, [fd](int other) { return syscall(SYS_dup3, other, fd, 0); });
}

void dup2_by_syscall(int fd) {
#ifdef SYS_dup2
  close_by_duplicate(fd, [fd](int other) { return syscall(SYS_dup2, other, fd); });
#else
  dup3_by_syscall(fd);
#endif
}

void dup3_bare(int fd) {
  close_by_duplicate(fd, [fd](int other) { return bare_call(SYS_dup3, other, fd, 0); });
}

void say_no_socket(const Side& side, int fd) {
  char buffer[8];
  SAY(send(fd, "x", 1, MSG_NOSIGNAL));
  SAY(recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT));
  SAY(shutdown(fd, SHUT_WR));
  int value = 0;
  socklen_t length = sizeof(value);
  SAY(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length));
}

int open_nameless() { return open("/tmp", O_RDWR | O_TMPFILE, 0600); }

void say_file(const Side& side, int fd) {
  SAY(write(fd, "a file's bytes", 14));
  iovec part{const_cast<char*>(", and more"), 10};
  SAY(writev(fd, &part, 1));
  struct stat status {};
  SAY(fstat(fd, &status));
  SAY(status.st_size);
  SAY(lseek(fd, 0, SEEK_SET));
  char buffer[32] = {};
  SAY(read(fd, buffer, sizeof(buffer)));
  side.say_data("read", buffer, sizeof(buffer));
  SAY(pread(fd, buffer, 6, 2));
  side.say_data("read", buffer, 6);
  say_poll(side, fd);
  say_no_socket(side, fd);
}

void say_pipe(const Side& side, const int (&ends)[2]) {
  char buffer[32] = {};
  say_poll(side, ends[0]);
  SAY(write(ends[1], "a pipe's bytes", 14));
  say_poll(side, ends[0]);
  say_poll(side, ends[1]);
  SAY(read(ends[0], buffer, sizeof(buffer)));
  side.say_data("read", buffer, 14);
  say_no_socket(side, ends[0]);
}

void say_counter(const Side& side, int fd) {
  SAY(eventfd_write(fd, 7));
  say_poll(side, fd);
  eventfd_t value = 0;
  SAY(read(fd, &value, sizeof(value)));
  SAY(value);
  SAY(read(fd, &value, sizeof(value)));
  say_no_socket(side, fd);
}

void say_pair(const Side& side, const int (&ends)[2]) {
  char buffer[32] = {};
  SAY(send(ends[0], "there", 5, 0));
  SAY(recv(ends[1], buffer, sizeof(buffer), 0));
  side.say_data("received", buffer, 5);
  SAY(write(ends[1], "and back", 8));
  SAY(read(ends[0], buffer, sizeof(buffer)));
  side.say_data("received", buffer, 8);
}

// Each kind of file in turn is what `next()` connection's number becomes.
template <typename Next>
void say_successors(const Side& side, Close close_connection, const Next& next) {
  int fd = next();
  close_connection(fd);
  const int file = open_nameless();
  SAY(file == fd);
  say_file(side, file);
  SAY(close(file));

  int ends[2] = {};
  fd = next();
  close_connection(fd);
  require(pipe(ends) == 0, "pipe");
  SAY(ends[0] == fd);
  say_pipe(side, ends);
  SAY(close(ends[0]));
  SAY(close(ends[1]));

  fd = next();
  close_connection(fd);
  const int counter = eventfd(0, EFD_NONBLOCK);
  SAY(counter == fd);
  say_counter(side, counter);
  SAY(close(counter));

  fd = next();
  close_connection(fd);
  require(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
  SAY(ends[0] == fd);
  say_pair(side, ends);
  SAY(close(ends[0]));
  SAY(close(ends[1]));

  // By a call that no library has a function for in front of it.
  fd = next();
  close_connection(fd);
  const long raw =
      bare_call(SYS_openat, AT_FDCWD, reinterpret_cast<long>("/tmp"), O_RDWR | O_TMPFILE, 0600);
  SAY(raw == fd);
  say_file(side, static_cast<int>(raw));
  SAY(close(static_cast<int>(raw)));

  // And by the next connection.
  fd = next();
  close_connection(fd);
  const int again = next();
  SAY(again == fd);
  send_text(side, again, "welcome");
  close_connection(again);
}

// The client ends each connection first; the server has seen the end when it closes its own.
template <Close kClose>
void serve_successors(Side& side) {
  const int listener = side.listen_here();
  say_successors(side, kClose, [&] {
    const int fd = accept(listener, nullptr, nullptr);
    require(fd >= 0, "accept");
    side.say_data("received", recv_to_end(side, fd));
    return fd;
  });
  side.hear();
}

template <Close kClose>
void connect_successors(Side& side) {
  const int port = side.hear();
  unsigned count = 0;
  say_successors(side, kClose, [&] {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    require(connect_to(fd, port) == 0, "connect");
    send_all(side, fd, pattern(1000, ++count));
    return fd;
  });
  side.tell();
}

// So that what is opened next gets the number of `fd` once that is closed.
void take_lower_numbers(int fd) {
  int number = open("/dev/null", O_RDWR);
  while (number < fd) number = dup(number);
  require(::close(number) == 0, "close");
}

// A connection that is readable, because its peer has ended.
int ended_connection(const Side& side) {
  const int fd = side.connected();
  take_lower_numbers(fd);
  wait_for(side, fd, POLLRDHUP);
  return fd;
}

void end_and_say_rest(Side& side) {
  const int fd = side.connected();
  SAY(shutdown(fd, SHUT_WR));
  side.say_data("rest", recv_to_end(side, fd));
  side.hear();
}

// What waits say of a pipe that has a connection's number.
template <Close kClose>
void say_waits(Side& side) {
  const int fd = ended_connection(side);
  kClose(fd);
  int ends[2] = {};
  require(pipe(ends) == 0, "pipe");
  SAY(ends[0] == fd);
  for (int written = 0; written < 2; ++written) {
    if (written == 1) SAY(write(ends[1], "x", 1));
    pollfd polled[2] = {{ends[0], POLLIN | POLLRDHUP, 0}, {ends[1], POLLIN, 0}};
    SAY(poll(polled, 2, 0));
    side.say(poll_names(polled[0].revents));
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    timeval now{};
    SAY(select(ends[0] + 1, &set, nullptr, nullptr, &now));
    SAY(FD_ISSET(ends[0], &set));
  }
  side.tell();
}

// At the end of a connection the kernel takes it out of a set, which then gets a pipe of the same
// number.
template <Close kClose>
void say_set(Side& side) {
  const int fd = ended_connection(side);
  const int set = epoll_create1(0);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = 1;
  SAY(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
  event = {};
  SAY(epoll_wait(set, &event, 1, kPatienceMs));
  side.say(epoll_names(event.events));
  kClose(fd);
  SAY(epoll_wait(set, &event, 1, 20));
  int ends[2] = {};
  require(pipe(ends) == 0, "pipe");
  SAY(ends[0] == fd);
  SAY(epoll_wait(set, &event, 1, 20));
  SAY(epoll_ctl(set, EPOLL_CTL_DEL, ends[0], nullptr));
  event.events = EPOLLIN;
  event.data.u64 = 2;
  SAY(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event));
  SAY(epoll_wait(set, &event, 1, 20));
  SAY(write(ends[1], "x", 1));
  SAY(epoll_wait(set, &event, 1, kPatienceMs));
  side.say(epoll_names(event.events));
  SAY(event.data.u64);
  char byte = 0;
  SAY(read(ends[0], &byte, 1));
  SAY(epoll_wait(set, &event, 1, 20));
  side.tell();
}

// One of two numbers of a connection becomes a file's; the other stays the connection's.
template <Close kClose>
void say_other_number(Side& side) {
  const int fd = side.connected();
  const int copy = dup(fd);
  take_lower_numbers(fd);
  send_text(side, fd, "by the first, ");
  kClose(fd);
  send_text(side, copy, "by the second, ");
  const int file = open_nameless();
  SAY(file == fd);
  say_file(side, file);
  send_text(side, copy, "and again");
  side.say_data("received", recv_all(side, copy, 5));
  SAY(close(file));
  SAY(shutdown(copy, SHUT_WR));
  side.say_data("rest", recv_to_end(side, copy));
}

void answer_to_other_number(Side& side) {
  const int fd = side.connected();
  send_text(side, fd, "hello");
  side.say_data("received", recv_to_end(side, fd));
}

// A Node.js server: clients come and go, and files are read and written between.
template <Close kClose>
void serve_files(Side& side) {
  constexpr int kRounds = 60;
  const int listener = side.listen_here();
  int good = 0;
  const Bytes page = pattern(30000);
  for (int i = 0; i < kRounds; ++i) {
    const int fd = accept(listener, nullptr, nullptr);
    side.hear();
    kClose(fd);
    const int file = open_nameless();
    const bool written = write(file, page.data(), page.size()) == std::ssize(page);
    Bytes found(page.size());
    const bool found_all = lseek(file, 0, SEEK_SET) == 0 &&
                           read(file, found.data(), found.size()) == std::ssize(found);
    if (file == fd && written && found_all && found == page) ++good;
    close(file);
    side.tell();
  }
  SAY(good);
}

template <Close kClose>
void come_and_go(Side& side) {
  const int port = side.hear();
  for (int i = 0; i < 60; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    require(connect_to(fd, port) == 0, "connect");
    send_text(side, fd, "GET");
    kClose(fd);
    side.tell();
    side.hear();
  }
}

}  // namespace

Cases raw_cases() {
  return {
      {"raw.close_by_syscall", serve_successors<close_by_syscall>,
       connect_successors<close_by_syscall>},
      {"raw.close_bare", serve_successors<close_bare>, connect_successors<close_bare>},
      {"raw.close_by_library", serve_successors<close_by_library>,
       connect_successors<close_by_library>},
      {"raw.close_range_by_syscall", serve_successors<close_range_by_syscall>,
       connect_successors<close_range_by_syscall>},
      {"raw.close_range_bare", serve_successors<close_range_bare>,
       connect_successors<close_range_bare>},
      {"raw.dup2_by_syscall", serve_successors<dup2_by_syscall>,
       connect_successors<dup2_by_syscall>},
      {"raw.dup3_by_syscall", serve_successors<dup3_by_syscall>,
       connect_successors<dup3_by_syscall>},
      {"raw.dup3_bare", serve_successors<dup3_bare>, connect_successors<dup3_bare>},

      {"raw.waits_by_syscall", say_waits<close_by_syscall>, end_and_say_rest},
      {"raw.waits_bare", say_waits<close_bare>, end_and_say_rest},
      {"raw.waits_by_library", say_waits<close_by_library>, end_and_say_rest},

      {"raw.set_by_syscall", say_set<close_by_syscall>, end_and_say_rest},
      {"raw.set_bare", say_set<close_bare>, end_and_say_rest},
      {"raw.set_by_library", say_set<close_by_library>, end_and_say_rest},

      {"raw.other_number_by_syscall", say_other_number<close_by_syscall>, answer_to_other_number},
      {"raw.other_number_bare", say_other_number<close_bare>, answer_to_other_number},
      {"raw.other_number_by_duplicate", say_other_number<dup3_bare>, answer_to_other_number},

      {"raw.files_between_clients", serve_files<close_by_syscall>, come_and_go<close_by_syscall>},
      {"raw.files_between_clients_bare", serve_files<close_bare>, come_and_go<close_bare>},
  };
}

}  // namespace posix_cases
