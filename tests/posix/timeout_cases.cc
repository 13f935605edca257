// SO_RCVTIMEO and SO_SNDTIMEO work, and how long waits last.
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "case.h"

namespace posix_cases {
namespace {

constexpr timeval kTenth{0, 100000};

// Of this network namespace, which is the process's own.
void set_loopback(bool up) {
  const int any = (socket)(AF_INET, SOCK_DGRAM, 0);  // not by a macro
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");  // NOLINT(clang-analyzer-security.insecureAPI.strcpy)
  request.ifr_flags = static_cast<short>(up ? IFF_UP : 0);
  require((ioctl)(any, SIOCSIFFLAGS, &request) == 0, "SIOCSIFFLAGS");
  (close)(any);
}

void end_when_told(Side& side) {
  const int fd = side.connected();
  side.hear();
  SAY(close(fd));
}

}  // namespace

Cases timeout_cases() {
  return {
      {"timeout.receive",
       [](Side& side) {
         const int fd = side.connected();
         char buffer[16];
         SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kTenth, sizeof(kTenth)));
         SAY(lasted_ms(100, [&] { SAY(recv(fd, buffer, sizeof(buffer), 0)); }));
         SAY(lasted_ms(100, [&] { SAY(read(fd, buffer, sizeof(buffer))); }));
         SAY(lasted_ms(100, [&] { SAY(recv(fd, buffer, 8, MSG_PEEK)); }));
         iovec part{buffer, sizeof(buffer)};
         SAY(lasted_ms(100, [&] { SAY(readv(fd, &part, 1)); }));
         // What has come until then is not lost.
         side.tell();
         wait_bytes(side, fd, 3);
         SAY(lasted_ms(100, [&] { SAY(recv(fd, buffer, sizeof(buffer), MSG_WAITALL)); }));
         side.say_data("received", buffer, 3);
         constexpr timeval kNone{};
         SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kNone, sizeof(kNone)));
         side.tell();
         SAY(recv(fd, buffer, 4, MSG_WAITALL));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         send_text(side, fd, "abc");
         side.hear();
         sleep_ms(200);
         send_text(side, fd, "late");
         side.hear();
       }},

      {"timeout.send",
       [](Side& side) {
         const int fd = side.connected();
         SAY(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kTenth, sizeof(kTenth)));
         fill(side, fd);
         SAY(lasted_ms(100, [&] { SAY(until_failure([&] { return send(fd, "x", 1, 0); })); }));
         SAY(lasted_ms(100, [&] { SAY(until_failure([&] { return write(fd, "x", 1); })); }));
         side.tell();
       },
       end_when_told},

      {"timeout.receive_in_all",
       [](Side& side) {
         // It is one time for the call, however often something comes.
         const int fd = side.connected();
         constexpr timeval kTime{0, 300000};
         SAY(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kTime, sizeof(kTime)));
         char buffer[1000];
         ssize_t got = 0;
         side.tell();
         wait_bytes(side, fd, 1);
         SAY(lasted_ms(300, [&] { got = recv(fd, buffer, sizeof(buffer), MSG_WAITALL); }));
         SAY(got > 0 && got < 300);  // of the 600 that come
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         // Longer than lasted_ms() allows for.
         int bytes = 600;
         pollfd told{kHear, POLLIN, 0};
         do {
           send(fd, "x", 1, MSG_NOSIGNAL);
         } while (--bytes != 0 && poll(&told, 1, 100) == 0);
       }},

      {"timeout.send_in_all",
       [](Side& side) {
         const int fd = side.connected();
         constexpr timeval kTime{0, 300000};
         SAY(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kTime, sizeof(kTime)));
         const Bytes data(64U << 20U);
         ssize_t sent = 0;
         side.tell();
         SAY(lasted_ms(300, [&] { sent = send(fd, data.data(), data.size(), 0); }));
         SAY(sent > 0 && sent < std::ssize(data));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         pollfd told{kHear, POLLIN, 0};
         Bytes part(1 << 20);
         // No more than is there: the other side may have sent its last, and tell so later.
         for (int i = 0; i < 120 && poll(&told, 1, 50) == 0; ++i)
           recv(fd, part.data(), part.size(), MSG_DONTWAIT);
       }},

      {"timeout.keep_alive",
       [](Side& side) {
         if (std::strcmp(host(), "127.0.0.1") != 0) {
           side.say("another network's address");
           side.tell();
           return;
         }
         // Both ends here, and then no network between them.
         if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
           side.say("no namespaces");
           side.tell();
           return;
         }
         set_loopback(true);
         const int listener = side.listen_here();
         sockaddr_in address{};
         socklen_t length = sizeof(address);
         getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
         const int near = socket(AF_INET, SOCK_STREAM, 0);
         SAY(connect_to(near, ntohs(address.sin_port)));
         const int far = accept(listener, nullptr, nullptr);
         send_text(side, near, "hello");
         side.say_data("received", recv_all(side, far, 5));
         const int one = 1;
         SAY(setsockopt(far, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)));
         SAY(setsockopt(far, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof(one)));
         SAY(setsockopt(far, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof(one)));
         SAY(setsockopt(far, IPPROTO_TCP, TCP_KEEPCNT, &one, sizeof(one)));
         set_loopback(false);
         char byte = 0;
         SAY(recv(far, &byte, 1, 0));
         SAY(recv(far, &byte, 1, 0));
         SAY(send(far, "x", 1, MSG_NOSIGNAL));
         say_poll(side, far);
       },
       [](Side& side) { side.hear(); }},

      {"timeout.accept",
       [](Side& side) {
         const int listener = side.listen_here();
         SAY(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &kTenth, sizeof(kTenth)));
         SAY(lasted_ms(100, [&] { SAY(accept(listener, nullptr, nullptr)); }));
         side.tell();
       },
       [](Side& side) {
         side.hear();
         side.hear();
       }},

      {"timeout.waits",
       [](Side& side) {
         const int fd = side.connected();
         pollfd polled{fd, POLLIN, 0};
         SAY(poll(&polled, 1, 0));
         SAY(lasted_ms(50, [&] { SAY(poll(&polled, 1, 50)); }));
         const timespec time{0, 50000000};
         SAY(lasted_ms(50, [&] { SAY(ppoll(&polled, 1, &time, nullptr)); }));
         fd_set set;
         FD_ZERO(&set);
         FD_SET(fd, &set);
         timeval left{0, 50000};
         SAY(lasted_ms(50, [&] { SAY(select(fd + 1, &set, nullptr, nullptr, &left)); }));
         SAY(FD_ISSET(fd, &set) != 0);
         SAY(left.tv_sec);
         SAY(left.tv_usec);
         FD_SET(fd, &set);
         SAY(lasted_ms(50, [&] { SAY(pselect(fd + 1, &set, nullptr, nullptr, &time, nullptr)); }));
         SAY(lasted_ms(50, [&] { SAY(poll(nullptr, 0, 50)); }));
         side.tell();
       },
       end_when_told},
  };
}

}  // namespace posix_cases
