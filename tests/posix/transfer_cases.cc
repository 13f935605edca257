// How bytes go through: sizes, every call that sends or receives, and the flags.
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <string>

#include "case.h"

namespace posix_cases {
namespace {

constexpr std::size_t kSizes[] = {1,    2,    63,    64,    65,        1000,           4095,
                                  4096, 4097, 65535, 65536, 1U << 20U, (5U << 20U) + 3};

// Receives exactly `bytes`, by one call that waits for all.
void say_received(const Side& side, const char* name, int fd, std::size_t bytes) {
  Bytes buffer(bytes);
  side.say_result(name, ::recv(fd, buffer.data(), bytes, MSG_WAITALL));
  side.say_data(name, buffer);
}

}  // namespace

Cases transfer_cases() {
  return {
      {"transfer.sizes",
       [](Side& side) {
         const int fd = side.connected();
         for (const std::size_t size : kSizes) side.say_data("received", recv_all(side, fd, size));
         for (const std::size_t size : kSizes) send_all(side, fd, pattern(size, 7));
         side.say_data("rest", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         for (const std::size_t size : kSizes) send_all(side, fd, pattern(size));
         for (const std::size_t size : kSizes) side.say_data("received", recv_all(side, fd, size));
         SAY(close(fd));
       }},

      {"transfer.blocking_send_takes_all",
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         const Bytes data = pattern(20U << 20U);
         SAY(send(fd, data.data(), data.size(), 0));
         SAY(write(fd, data.data(), 3 << 20));
       }},

      {"transfer.nothing",
       [](Side& side) {
         const int fd = side.connected();
         char buffer[8];
         SAY(send(fd, buffer, 0, 0));
         SAY(write(fd, buffer, 0));
         SAY(read(fd, buffer, 0));
         SAY(recv(fd, buffer, 0, MSG_DONTWAIT));
         side.tell();
         wait_bytes(side, fd, 3);
         SAY(read(fd, buffer, 0));
         SAY(recv(fd, buffer, 0, 0));
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         SAY(recv(fd, buffer, 0, 0));
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         send_text(side, fd, "abc");
         SAY(shutdown(fd, SHUT_WR));
       }},

      {"transfer.peek",
       [](Side& side) {
         const int fd = side.connected();
         char buffer[16] = {};
         SAY(recv(fd, buffer, sizeof(buffer), MSG_PEEK | MSG_DONTWAIT));
         side.tell();
         wait_bytes(side, fd, 10);
         SAY(recv(fd, buffer, 4, MSG_PEEK));
         side.say_data("peeked", buffer, 4);
         SAY(recv(fd, buffer, sizeof(buffer), MSG_PEEK));
         side.say_data("peeked", buffer, 10);
         SAY(recv(fd, buffer, 3, 0));
         SAY(recv(fd, buffer, sizeof(buffer), MSG_PEEK));
         side.say_data("peeked", buffer, 7);
         side.tell();
         SAY(recv(fd, buffer, 12, MSG_PEEK | MSG_WAITALL));
         side.say_data("peeked", buffer, 12);
         SAY(recv(fd, buffer, 12, MSG_WAITALL));
         side.say_data("received", buffer, 12);
         side.tell();
         wait_for(side, fd, POLLIN);
         SAY(recv(fd, buffer, sizeof(buffer), MSG_PEEK));
         SAY(recv(fd, buffer, sizeof(buffer), 0));
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         send_text(side, fd, "0123456789");
         side.hear();
         send_text(side, fd, "abcde");
         side.hear();
         SAY(close(fd));
       }},

      {"transfer.peek_large",
       [](Side& side) {
         const int fd = side.connected();
         Bytes buffer(30000);
         SAY(recv(fd, buffer.data(), buffer.size(), MSG_PEEK | MSG_WAITALL));
         side.say_data("peeked", buffer);
         say_received(side, "received", fd, 30000);
         say_received(side, "received", fd, 20000);
       },
       [](Side& side) {
         const int fd = side.connected();
         const Bytes data = pattern(50000);
         for (std::size_t at = 0; at < data.size(); at += 1000) {
           send_all(side, fd,
                    Bytes(data.begin() + static_cast<long>(at),
                          data.begin() + static_cast<long>(at) + 1000));
         }
       }},

      {"transfer.truncate",
       [](Side& side) {
         const int fd = side.connected();
         char buffer[16] = {};
         wait_bytes(side, fd, 10);
         SAY(recv(fd, nullptr, 4, MSG_TRUNC));
         SAY(recv(fd, buffer, 2, MSG_TRUNC));
         SAY(recv(fd, buffer, 3, 0));
         side.say_data("received", buffer, 3);
         iovec part{buffer, 1};
         msghdr message{};
         message.msg_iov = &part;
         message.msg_iovlen = 1;
         SAY(recvmsg(fd, &message, 0));
         side.say("flags " + std::to_string(message.msg_flags));
       },
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "0123456789");
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"transfer.wait_all",
       [](Side& side) {
         const int fd = side.connected();
         char buffer[16] = {};
         SAY(recv(fd, buffer, 9, MSG_WAITALL));
         side.say_data("received", buffer, 9);
         iovec parts[] = {{buffer, 4}, {buffer + 4, 5}};
         msghdr message{};
         message.msg_iov = parts;
         message.msg_iovlen = 2;
         SAY(recvmsg(fd, &message, MSG_WAITALL));
         side.say_data("received", buffer, 9);
         wait_bytes(side, fd, 4);
         SAY(recv(fd, buffer, 9, MSG_WAITALL | MSG_DONTWAIT));
         side.tell();
         SAY(recv(fd, buffer, 9, MSG_WAITALL));
         SAY(recv(fd, buffer, 9, MSG_WAITALL));
       },
       [](Side& side) {
         const int fd = side.connected();
         for (int i = 0; i < 6; ++i) {
           send_text(side, fd, "xyz");
           sleep_ms(5);
         }
         send_text(side, fd, "four");
         side.hear();
         send_text(side, fd, "end");
         SAY(shutdown(fd, SHUT_WR));
       }},

      {"transfer.more_and_nosignal",
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         SAY(send(fd, "one", 3, MSG_MORE));
         SAY(send(fd, "two", 3, MSG_NOSIGNAL));
         SAY(send(fd, "three", 5, MSG_MORE | MSG_DONTWAIT));
         // What MSG_MORE holds back goes at the end.
         SAY(shutdown(fd, SHUT_WR));
       }},

      {"transfer.urgent",
       [](Side& side) {
         const int fd = side.connected();
         char buffer[8] = {};
         wait_for(side, fd, POLLPRI);
         SAY(recv(fd, buffer, 1, MSG_OOB));
         side.say_data("urgent", buffer, 1);
         SAY(recv(fd, buffer, 1, MSG_OOB));
         SAY(recv(fd, buffer, 3, MSG_WAITALL));
         side.say_data("received", buffer, 3);
         SAY(recv(fd, buffer, 3, MSG_WAITALL));
         side.say_data("received", buffer, 3);
       },
       [](Side& side) {
         const int fd = side.connected();
         SAY(send(fd, "abc", 3, 0));
         SAY(send(fd, "!", 1, MSG_OOB));
         SAY(send(fd, "def", 3, 0));
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"transfer.urgent_of_several",
       [](Side& side) {
         // The last byte is urgent, those before it are not.
         const int fd = side.connected();
         char buffer[8] = {};
         wait_for(side, fd, POLLPRI);
         SAY(recv(fd, buffer, 1, MSG_OOB));
         side.say_data("urgent", buffer, 1);
         SAY(recv(fd, buffer, 5, MSG_WAITALL));
         side.say_data("received", buffer, 5);
         side.tell();
         wait_for(side, fd, POLLPRI);
         SAY(recv(fd, buffer, 1, MSG_OOB));
         side.say_data("urgent", buffer, 1);
         SAY(recv(fd, buffer, 4, MSG_WAITALL));
         side.say_data("received", buffer, 4);
         side.say_data("rest", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         SAY(send(fd, "01234!", 6, MSG_OOB));
         side.hear();
         iovec parts[] = {{const_cast<char*>("ab"), 2}, {const_cast<char*>("cd?"), 3}};
         msghdr message{};
         message.msg_iov = parts;
         message.msg_iovlen = 2;
         SAY(sendmsg(fd, &message, MSG_OOB));
         SAY(send(fd, "rest", 4, 0));
       }},

      // More room than there is memory: refused, though little comes.
      {"transfer.huge_vectors",
       [](Side& side) {
         const int fd = side.connected();
         char bytes[8] = {};
         iovec parts[] = {{bytes, sizeof(bytes)},
                          {bytes, unknown(~std::size_t{0} / 2)},
                          {bytes, unknown(~std::size_t{0} / 2)}};
         wait_bytes(side, fd, 3);
         SAY(readv(fd, parts, 3));
         side.say_data("received", bytes, sizeof(bytes));
         SAY(readv(fd, parts, 1));
       },
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "abc");
       }},

      {"transfer.bad_pointers",
       [](Side& side) {
         // They cost no bytes.
         const int fd = side.connected();
         wait_bytes(side, fd, 4);
         char* const nowhere[] = {nullptr, reinterpret_cast<char*>(unknown(16L))};
         for (char* pointer : nowhere) {
           iovec part{pointer, 2};
           msghdr message{};
           message.msg_iov = &part;
           message.msg_iovlen = 1;
           SAY(recv(fd, unknown(pointer), unknown(2), 0));
           SAY(read(fd, unknown(pointer), unknown(2)));
           SAY(recv(fd, unknown(pointer), unknown(2), MSG_PEEK));
           SAY(readv(fd, &part, 1));
           SAY(recvmsg(fd, &message, 0));
           SAY(send(fd, unknown(pointer), unknown(2), 0));
           SAY(write(fd, unknown(pointer), unknown(2)));
           SAY(writev(fd, &part, 1));
           SAY(sendmsg(fd, &message, 0));
         }
         side.say_data("received", recv_all(side, fd, 4));
         SAY(send(fd, "all", 3, 0));
       },
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "four");
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"transfer.urgent_after_others",
       [](Side& side) {
         const int fd = side.connected();
         char buffer[8] = {};
         wait_for(side, fd, POLLPRI);
         SAY(recv(fd, buffer, 4, MSG_WAITALL));
         side.say_data("received", buffer, 4);
         SAY(recv(fd, buffer, 8, MSG_OOB));
         side.say_data("urgent", buffer, 1);
         SAY(recv(fd, buffer, 8, MSG_DONTWAIT));
         side.tell();
         wait_for(side, fd, POLLPRI);
         side.say_data("received", recv_all(side, fd, 59'999));
         SAY(recv(fd, buffer, 8, MSG_OOB));
         side.say_data("urgent", buffer, 1);
         // Over the urgent byte's place, which would count as unread.
         SAY(recv(fd, buffer, 8, MSG_DONTWAIT));
         SAY(close(fd));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         iovec parts[] = {{const_cast<char*>("abcd"), 4}, {const_cast<char*>("!?"), 1}};
         msghdr message{};
         message.msg_iov = parts;
         message.msg_iovlen = 2;
         SAY(send(fd, "", 0, MSG_OOB));
         SAY(sendmsg(fd, &message, MSG_OOB));
         side.hear();
         const Bytes much = pattern(60'000);
         SAY(send(fd, much.data(), much.size(), MSG_OOB));
         side.hear();
         wait_for(side, fd, POLLRDHUP);
         SAY(send(fd, "ab", 2, MSG_OOB | MSG_NOSIGNAL));
         wait_for(side, fd, POLLHUP);
         SAY(send(fd, "ab", 2, MSG_OOB | MSG_NOSIGNAL));
         SAY(send(fd, "a", 1, MSG_OOB | MSG_NOSIGNAL));
       }},

      {"transfer.urgent_after_shutdown",
       [](Side& side) {
         const int fd = side.connected();
         SAY(shutdown(fd, SHUT_WR));
         SAY(send(fd, "!", 1, MSG_OOB | MSG_NOSIGNAL));
         SAY(send(fd, "", 0, MSG_OOB | MSG_NOSIGNAL));
         side.tell();
         side.say_data("rest", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         wait_for(side, fd, POLLRDHUP);
         say_poll(side, fd);
         // The other direction goes on.
         SAY(send(fd, "!", 1, MSG_OOB));
       }},

      {"transfer.readable_bytes",
       [](Side& side) {
         const int fd = side.connected();
         int readable = -1;
         SAY(ioctl(fd, FIONREAD, &readable));
         SAY(readable);
         side.tell();
         wait_bytes(side, fd, 100);
         SAY(ioctl(fd, FIONREAD, &readable));
         SAY(readable);
         char buffer[40];
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         SAY(ioctl(fd, FIONREAD, &readable));
         SAY(readable);
         SAY(recv(fd, buffer, 10, MSG_PEEK));
         SAY(ioctl(fd, FIONREAD, &readable));
         SAY(readable);
         recv_all(side, fd, 60);
         side.tell();
         wait_for(side, fd, POLLIN);
         SAY(ioctl(fd, FIONREAD, &readable));
         SAY(readable);
         const int listener = socket(AF_INET, SOCK_STREAM, 0);
         SAY(listen(listener, 1));
         SAY(ioctl(listener, FIONREAD, &readable));
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         send_all(side, fd, pattern(100));
         side.hear();
         SAY(close(fd));
       }},

      {"transfer.all_that_is_there",
       [](Side& side) {
         // What FIONREAD counts, one call takes, wherever a buffer wraps around. All of it fits the
         // window that TCP begins with.
         const int fd = side.connected();
         int whole = 0;
         Bytes buffer(50001);
         for (int i = 0; i < 90; ++i) {
           wait_bytes(side, fd, 50001);
           whole += recv(fd, buffer.data(), buffer.size(), 0) == std::ssize(buffer) ? 1 : 0;
           side.tell();
         }
         SAY(whole);
         side.say_data("last", buffer);
       },
       [](Side& side) {
         const int fd = side.connected();
         for (unsigned i = 0; i < 90; ++i) {
           send_all(side, fd, pattern(50001, i));
           side.hear();
         }
       }},

      {"transfer.half_closed_long",
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_to_end(side, fd));
         send_all(side, fd, pattern(12U << 20U, 3));
         SAY(close(fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         send_all(side, fd, pattern(100000));
         SAY(shutdown(fd, SHUT_WR));
         side.say_data("received", recv_to_end(side, fd));
       }},
  };
}

}  // namespace posix_cases
