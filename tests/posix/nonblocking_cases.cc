// Sockets that do not block, by every way to make them so.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "case.h"

namespace posix_cases {
namespace {

void say_would_block(const Side& side, int fd) {
  char buffer[8];
  SAY(recv(fd, buffer, sizeof(buffer), 0));
  SAY(read(fd, buffer, sizeof(buffer)));
  SAY(recv(fd, buffer, sizeof(buffer), MSG_WAITALL));
}

// A client that sends what the server asks for, then ends.
void send_when_told(Side& side) {
  const int fd = side.connected();
  side.hear();
  send_text(side, fd, "data");
  side.hear();
}

}  // namespace

Cases nonblocking_cases() {
  return {
      {"nonblocking.fcntl",
       [](Side& side) {
         const int fd = side.connected();
         SAY(fcntl(fd, F_GETFL));
         SAY(fcntl(fd, F_SETFL, O_NONBLOCK));
         SAY(fcntl(fd, F_GETFL));
         say_would_block(side, fd);
         SAY(fcntl(fd, F_SETFL, 0));
         SAY(fcntl(fd, F_GETFL));
         side.tell();
         char buffer[8];
         SAY(recv(fd, buffer, 4, MSG_WAITALL));
         side.tell();
       },
       send_when_told},

      {"nonblocking.ioctl",
       [](Side& side) {
         const int fd = side.connected();
         int on = 1;
         SAY(ioctl(fd, FIONBIO, &on));
         SAY(fcntl(fd, F_GETFL));
         say_would_block(side, fd);
         on = 0;
         SAY(ioctl(fd, FIONBIO, &on));
         SAY(fcntl(fd, F_GETFL));
         side.tell();
         char buffer[8];
         SAY(recv(fd, buffer, 4, MSG_WAITALL));
         side.tell();
       },
       send_when_told},

      {"nonblocking.accept4",
       [](Side& side) {
         const int listener = side.listen_here();
         const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
         SAY(fcntl(fd, F_GETFL));
         SAY(fcntl(fd, F_GETFD));
         say_would_block(side, fd);
         side.tell();
         wait_bytes(side, fd, 4);
         char buffer[8];
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         side.tell();
       },
       send_when_told},

      {"nonblocking.listener",
       [](Side& side) {
         const int listener = side.listen_here();
         SAY(fcntl(listener, F_SETFL, O_NONBLOCK));
         SAY(accept(listener, nullptr, nullptr));
         side.tell();
         wait_for(side, listener, POLLIN);
         const int fd = accept(listener, nullptr, nullptr);
         // It does not inherit the listener's mode.
         SAY(fcntl(fd, F_GETFL));
         SAY(fcntl(fd, F_GETFD));
         SAY(accept(listener, nullptr, nullptr));
         side.say_data("received", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int port = side.hear();
         side.hear();
         const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
         SAY(fcntl(fd, F_GETFD));
         SAY(connect_to(fd, port));
         send_text(side, fd, "hello");
       }},

      {"nonblocking.connect",
       [](Side& side) {
         const int listener = side.listen_here();
         side.hear();
         const int fd = accept(listener, nullptr, nullptr);
         send_text(side, fd, "welcome");
         side.say_data("received", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int port = side.hear();
         const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
         SAY(connect_to(fd, port));
         wait_for(side, fd, POLLOUT);
         say_socket_error(side, fd);
         SAY(connect_to(fd, port));
         SAY(connect_to(fd, port));
         char buffer[8];
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         SAY(send(fd, "early", 5, 0));
         side.tell();
         wait_bytes(side, fd, 7);
         SAY(recv(fd, buffer, sizeof(buffer), 0));
       }},

      {"nonblocking.connect_refused",
       [](Side& side) {
         const int listener = side.listen_here();
         SAY(close(listener));
         side.tell();
       },
       [](Side& side) {
         const int port = side.hear();
         side.hear();
         const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
         SAY(connect_to(fd, port));
         wait_for(side, fd, POLLERR);
         pollfd polled{fd, POLLIN | POLLOUT | POLLRDHUP, 0};
         SAY(poll(&polled, 1, 0));
         side.say(poll_names(polled.revents));
         say_socket_error(side, fd);
         say_socket_error(side, fd);
         // The same socket may try again.
         SAY(connect_to(fd, port));
         wait_for(side, fd, POLLHUP);
         SAY(connect_to(fd, port));
       }},

      {"nonblocking.small_buffers",
       [](Side& side) {
         const int fd = side.connected();
         const int size = 8192;
         SAY(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)));
         side.tell();
         const auto bytes = static_cast<std::size_t>(side.hear());
         const Bytes data = recv_all(side, fd, bytes);
         SAY(data.size() == bytes);
         side.tell();
         side.say_data("rest", recv_to_end(side, fd));
       },
       [](Side& side) {
         // A program that makes its buffers small wants to be stopped soon.
         const int fd = side.connected();
         const int size = 8192;
         SAY(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)));
         side.hear();
         const std::size_t bytes = fill(side, fd);
         SAY(bytes > 0 && bytes < 150000);
         say_poll(side, fd);
         side.tell(static_cast<int>(bytes));
         side.hear();
         wait_for(side, fd, POLLOUT);
         // More than there is room for, by a call that blocks.
         set_blocking(fd, true);
         const Bytes data = pattern(500000);
         SAY(send(fd, data.data(), data.size(), 0));
       }},

      {"nonblocking.backpressure",
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         const auto bytes = static_cast<std::size_t>(side.hear());
         const Bytes data = recv_all(side, fd, bytes);
         const Bytes block = pattern(1 << 16);
         bool same = true;
         for (std::size_t i = 0; i < data.size(); ++i)
           same = same && data[i] == block[i % block.size()];
         SAY(same);
         side.tell();
         side.say_data("rest", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         SAY(fcntl(fd, F_SETFL, O_NONBLOCK));
         const std::size_t bytes = fill(side, fd);
         SAY(bytes > 0);
         side.tell();
         side.tell(static_cast<int>(bytes));
         side.hear();
         wait_for(side, fd, POLLOUT);
         SAY(send(fd, "more", 4, 0));
       }},
  };
}

}  // namespace posix_cases
