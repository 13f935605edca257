// The entry points that a fortified program calls: buffers of known size, with lengths that are
// only known when it runs.
#include <netinet/in.h>
#include <poll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>

#include "case.h"

#if !defined(_FORTIFY_SOURCE) || _FORTIFY_SOURCE < 2
#error "these cases must be built with -D_FORTIFY_SOURCE=2 -O2"
#endif

namespace posix_cases {
Cases fortified_cases() {
  return {
      {"fortified.receive",
       [](Side& side) {
         const int fd = side.connected();
         char buffer[32] = {};
         sockaddr_in from{};
         socklen_t length = sizeof(from);
         wait_bytes(side, fd, 20);
         SAY(recv(fd, buffer, unknown<std::size_t>(5), 0));
         SAY(recv(fd, buffer + 5, unknown<std::size_t>(5), MSG_PEEK));
         SAY(read(fd, buffer + 5, unknown<std::size_t>(5)));
         SAY(recvfrom(fd, buffer + 10, unknown<std::size_t>(10), 0,
                      reinterpret_cast<sockaddr*>(&from), &length));
         side.say_data("received", buffer, 20);
         SAY(recv(fd, buffer, unknown<std::size_t>(5), MSG_DONTWAIT));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         send_all(side, fd, pattern(20));
         side.hear();
       }},

      {"fortified.waits",
       [](Side& side) {
         const int fd = side.connected();
         pollfd polled[2] = {{fd, POLLIN | POLLOUT, 0}, {-1, 0, 0}};
         SAY(poll(polled, unknown<nfds_t>(2), unknown(100)));
         side.say(poll_names(polled[0].revents));
         const timespec soon{0, 1000000};
         SAY(ppoll(polled, unknown<nfds_t>(1), &soon, nullptr));
         fd_set set;
         FD_ZERO(&set);
         FD_SET(unknown(fd), &set);
         timeval now{};
         SAY(select(fd + 1, nullptr, &set, nullptr, &now));
         SAY(FD_ISSET(unknown(fd), &set) != 0);
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         SAY(close(fd));
       }},

      {"fortified.streams",
       [](Side& side) {
         FILE* stream = fdopen(side.connected(), "r");
         char buffer[64] = {};
         SAY(fgets(buffer, unknown(10), stream) != nullptr);
         side.say_data("line", buffer, 5);
         SAY(fread(buffer, unknown<std::size_t>(1), unknown<std::size_t>(8), stream));
         side.say_data("received", buffer, 8);
         SAY(fclose(stream));
       },
       [](Side& side) {
         const int fd = side.connected();
         FILE* stream = fdopen(fd, "w");
         SAY(fprintf(stream, "%s%c", "line", unknown('\n')));
         SAY(fflush(stream));
         SAY(dprintf(fd, "%s%d", "data", unknown(1234)));
         SAY(fclose(stream));
       }},
  };
}

}  // namespace posix_cases
