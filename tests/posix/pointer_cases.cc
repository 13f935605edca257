// Buffers that are not valid memory.
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "case.h"

namespace posix_cases {

Cases pointer_cases() {
  return {
      {"pointer.null",
       [](Side& side) {
         // Nothing is lost by a call that fails, and nothing comes twice.
         const int fd = side.connected();
         char* const nowhere = unknown<char*>(nullptr);
         char buffer[8] = {};
         SAY(recv(fd, nowhere, 2, MSG_DONTWAIT));
         SAY(recv(fd, nowhere, 0, MSG_DONTWAIT));
         side.tell();
         wait_bytes(side, fd, 6);
         SAY(recv(fd, nowhere, 2, 0));
         SAY(recv(fd, nowhere, 2, MSG_PEEK));
         SAY(read(fd, nowhere, 2));
         SAY(read(fd, nowhere, 0));
         SAY(recvfrom(fd, nowhere, 2, MSG_WAITALL, nullptr, nullptr));
         iovec first[] = {{nowhere, 2}, {buffer, 8}};
         iovec later[] = {{buffer, 3}, {nowhere, 2}};
         iovec after[] = {{buffer, 1}, {nowhere, 0}, {buffer + 1, 1}, {nowhere, 0}};
         SAY(readv(fd, first, 2));
         SAY(readv(fd, later, 2));
         SAY(readv(fd, after, 4));
         SAY(recv(fd, nowhere, 1, MSG_TRUNC));
         SAY(recv(fd, buffer + 2, 1, 0));
         // Not reached, so not seen.
         iovec enough[] = {{buffer + 3, 5}, {nowhere, 2}};
         SAY(readv(fd, enough, 2));
         side.say_data("received", buffer, 5);
         SAY(recv(fd, nowhere, 2, MSG_DONTWAIT));
         side.tell();
         wait_for(side, fd, POLLRDHUP);
         SAY(recv(fd, nowhere, 2, 0));
       },
       [](Side& side) {
         const int fd = side.connected();
         char* const nowhere = unknown<char*>(nullptr);
         side.hear();
         SAY(send(fd, nowhere, 2, 0));
         SAY(send(fd, nowhere, 0, 0));
         SAY(write(fd, nowhere, 2));
         SAY(sendto(fd, nowhere, 2, 0, nullptr, 0));
         iovec first[] = {{nowhere, 2}, {const_cast<char*>("lost"), 4}};
         iovec later[] = {{const_cast<char*>("lost"), 4}, {nowhere, 2}};
         iovec after[] = {
             {const_cast<char*>("abc"), 3}, {nowhere, 0}, {const_cast<char*>("def"), 3}};
         SAY(writev(fd, first, 2));
         SAY(writev(fd, later, 2));
         SAY(writev(fd, after, 3));
         side.hear();
         SAY(shutdown(fd, SHUT_WR));
         SAY(send(fd, nowhere, 2, MSG_NOSIGNAL));
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"pointer.of_the_kernel",
       [](Side& side) {
         // Refused before anything else is looked at.
         const int fd = side.connected();
         auto* const beyond = unknown(reinterpret_cast<char*>(~std::uintptr_t{0} - 255));
         SAY(recv(fd, beyond, 2, MSG_DONTWAIT));
         side.tell();
         wait_bytes(side, fd, 3);
         SAY(recv(fd, beyond, 2, 0));
         SAY(recv(fd, beyond, 2, MSG_TRUNC));
         SAY(read(fd, beyond, 2));
         char buffer[8] = {};
         iovec parts[] = {{buffer, 3}, {beyond, 2}};
         SAY(readv(fd, parts, 2));
         side.say_data("received", recv_to_end(side, fd));
         SAY(recv(fd, beyond, 2, 0));
       },
       [](Side& side) {
         const int fd = side.connected();
         auto* const beyond = unknown(reinterpret_cast<char*>(~std::uintptr_t{0} - 255));
         side.hear();
         SAY(send(fd, beyond, 2, 0));
         iovec parts[] = {{const_cast<char*>("lost"), 4}, {beyond, 2}};
         SAY(writev(fd, parts, 2));
         SAY(send(fd, "abc", 3, 0));
         SAY(shutdown(fd, SHUT_WR));
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"pointer.urgent",
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         for (char* const bad :
              {unknown<char*>(nullptr), unknown(reinterpret_cast<char*>(~std::uintptr_t{0} - 255))})
           SAY(send(fd, bad, 2, MSG_OOB));
         SAY(shutdown(fd, SHUT_WR));
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"pointer.no_vectors",
       [](Side& side) {
         const int fd = side.connected();
         auto* const none = unknown<iovec*>(nullptr);
         auto* const no_message = unknown<msghdr*>(nullptr);
         auto* const no_messages = unknown<mmsghdr*>(nullptr);
         SAY(readv(fd, none, 1));
         SAY(readv(fd, none, 0));
         SAY(writev(fd, none, 1));
         SAY(writev(fd, none, 0));
         SAY(preadv2(fd, none, 1, -1, 0));
         SAY(pwritev2(fd, none, 1, -1, 0));
         SAY(recvmsg(fd, no_message, MSG_DONTWAIT));
         SAY(sendmsg(fd, no_message, 0));
         SAY(recvmmsg(fd, no_messages, 1, MSG_DONTWAIT, nullptr));
         SAY(sendmmsg(fd, no_messages, 1, 0));
         SAY(sendmmsg(fd, no_messages, 0, 0));
         msghdr message{};
         message.msg_iovlen = 1;
         SAY(recvmsg(fd, &message, MSG_DONTWAIT));
         SAY(sendmsg(fd, &message, 0));
         char byte = 'x';
         iovec huge[] = {{&byte, 1}, {&byte, unknown(~std::size_t{0} / 2 + 1)}};
         SAY(readv(fd, huge, 2));
         SAY(writev(fd, huge, 2));
         SAY(send(fd, "x", 1, 0));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         side.say_data("received", recv_to_end(side, fd));
       }},
  };
}

}  // namespace posix_cases
