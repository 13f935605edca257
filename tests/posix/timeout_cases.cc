// SO_RCVTIMEO and SO_SNDTIMEO work, and how long waits last.
#include <netinet/in.h>
#include <poll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "case.h"

namespace posix_cases {
namespace {

constexpr timeval kTenth{0, 100000};

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
         SAY(took_about_ms(100, [&] { SAY(recv(fd, buffer, sizeof(buffer), 0)); }));
         SAY(took_about_ms(100, [&] { SAY(read(fd, buffer, sizeof(buffer))); }));
         SAY(took_about_ms(100, [&] { SAY(recv(fd, buffer, 8, MSG_PEEK)); }));
         iovec part{buffer, sizeof(buffer)};
         SAY(took_about_ms(100, [&] { SAY(readv(fd, &part, 1)); }));
         // What has come until then is not lost.
         side.tell();
         wait_bytes(side, fd, 3);
         SAY(took_about_ms(100, [&] { SAY(recv(fd, buffer, sizeof(buffer), MSG_WAITALL)); }));
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
         SAY(took_about_ms(100, [&] { SAY(until_failure([&] { return send(fd, "x", 1, 0); })); }));
         SAY(took_about_ms(100, [&] { SAY(until_failure([&] { return write(fd, "x", 1); })); }));
         side.tell();
       },
       end_when_told},

      {"timeout.accept",
       [](Side& side) {
         const int listener = side.listen_here();
         SAY(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &kTenth, sizeof(kTenth)));
         SAY(took_about_ms(100, [&] { SAY(accept(listener, nullptr, nullptr)); }));
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
         SAY(took_about_ms(50, [&] { SAY(poll(&polled, 1, 50)); }));
         const timespec time{0, 50000000};
         SAY(took_about_ms(50, [&] { SAY(ppoll(&polled, 1, &time, nullptr)); }));
         fd_set set;
         FD_ZERO(&set);
         FD_SET(fd, &set);
         timeval left{0, 50000};
         SAY(took_about_ms(50, [&] { SAY(select(fd + 1, &set, nullptr, nullptr, &left)); }));
         SAY(FD_ISSET(fd, &set) != 0);
         SAY(left.tv_sec);
         SAY(left.tv_usec);
         FD_SET(fd, &set);
         SAY(took_about_ms(50,
                           [&] { SAY(pselect(fd + 1, &set, nullptr, nullptr, &time, nullptr)); }));
         SAY(took_about_ms(50, [&] { SAY(poll(nullptr, 0, 50)); }));
         side.tell();
       },
       end_when_told},
  };
}

}  // namespace posix_cases
