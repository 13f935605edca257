// Every call that sends or receives, beside send and recv, and what they refuse.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <climits>
#include <string>

#include "case.h"

namespace posix_cases {
namespace {

// A file of that content, at its beginning.
int file_of(const Bytes& content) {
  const int file = ::memfd_create("content", 0);
  require(file >= 0, "memfd_create");
  require(::write(file, content.data(), content.size()) == std::ssize(content), "write");
  require(::lseek(file, 0, SEEK_SET) == 0, "lseek");
  return file;
}

// For recvmmsg: three messages of ten bytes each, placed one after the other.
struct ThreeMessages {
  char buffer[30] = {};
  iovec parts[3] = {{buffer, 10}, {buffer + 10, 10}, {buffer + 20, 10}};
  mmsghdr messages[3] = {};

  ThreeMessages() {
    for (int i = 0; i < 3; ++i) {
      messages[i].msg_hdr.msg_iov = &parts[i];
      messages[i].msg_hdr.msg_iovlen = 1;
    }
  }
  ThreeMessages(const ThreeMessages&) = delete;
  ThreeMessages& operator=(const ThreeMessages&) = delete;
};

}  // namespace

Cases call_cases() {
  return {
      {"call.write_and_read",
       [](Side& side) {
         const int fd = side.connected();
         Bytes buffer(3000);
         wait_bytes(side, fd, 3000);
         SAY(read(fd, buffer.data(), 1000));
         iovec parts[] = {{buffer.data() + 1000, 1}, {nullptr, 0}, {buffer.data() + 1001, 1999}};
         SAY(readv(fd, parts, 3));
         side.say_data("received", buffer);
       },
       [](Side& side) {
         const int fd = side.connected();
         Bytes data = pattern(3000);
         SAY(write(fd, data.data(), 1500));
         iovec parts[] = {{data.data() + 1500, 1}, {nullptr, 0}, {data.data() + 1501, 1499}};
         SAY(writev(fd, parts, 3));
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"call.to_and_from",
       [](Side& side) {
         const int fd = side.connected();
         char buffer[64];
         sockaddr_in from{};
         socklen_t length = sizeof(from);
         wait_bytes(side, fd, 11);
         SAY(recvfrom(fd, buffer, sizeof(buffer), 0, reinterpret_cast<sockaddr*>(&from), &length));
         side.say_data("received", buffer, 11);
         SAY(from.sin_family);
         SAY(length);
       },
       [](Side& side) {
         const int fd = side.connected();
         sockaddr_in other{};
         other.sin_family = AF_INET;
         other.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
         other.sin_port = htons(9);
         SAY(sendto(fd, "hello", 5, 0, nullptr, 0));
         SAY(sendto(fd, " world", 6, 0, reinterpret_cast<sockaddr*>(&other), sizeof(other)));
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"call.messages",
       [](Side& side) {
         const int fd = side.connected();
         Bytes buffer(9000);
         iovec parts[] = {{buffer.data(), 10}, {buffer.data() + 10, 8990}};
         sockaddr_in from{};
         char control[64];
         msghdr message{};
         message.msg_name = &from;
         message.msg_namelen = sizeof(from);
         message.msg_iov = parts;
         message.msg_iovlen = 2;
         message.msg_control = control;
         message.msg_controllen = sizeof(control);
         wait_bytes(side, fd, 9000);
         SAY(recvmsg(fd, &message, 0));
         side.say_data("received", buffer);
         SAY(message.msg_namelen);
         SAY(message.msg_controllen);
         SAY(message.msg_flags);
       },
       [](Side& side) {
         const int fd = side.connected();
         Bytes data = pattern(9000);
         iovec parts[] = {{data.data(), 1}, {data.data() + 1, 4999}, {data.data() + 5000, 4000}};
         msghdr message{};
         message.msg_iov = parts;
         message.msg_iovlen = 3;
         SAY(sendmsg(fd, &message, 0));
         message.msg_iovlen = 0;
         SAY(sendmsg(fd, &message, 0));
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"call.many_messages",
       [](Side& side) {
         const int fd = side.connected();
         ThreeMessages three;
         mmsghdr* const messages = three.messages;
         wait_bytes(side, fd, 25);
         SAY(recvmmsg(fd, messages, 3, MSG_DONTWAIT, nullptr));
         for (const mmsghdr& message : three.messages) SAY(message.msg_len);
         side.say_data("received", three.buffer, 25);
         SAY(recvmmsg(fd, messages, 3, MSG_DONTWAIT, nullptr));
         side.tell();
         SAY(recvmmsg(fd, messages, 1, MSG_WAITFORONE, nullptr));
         SAY(messages[0].msg_len);
       },
       [](Side& side) {
         const int fd = side.connected();
         char text[] = "abcdefghijklmnopqrstuvwxy";
         iovec parts[] = {{text, 5}, {text + 5, 10}, {text + 15, 10}};
         mmsghdr messages[2] = {};
         messages[0].msg_hdr.msg_iov = &parts[0];
         messages[0].msg_hdr.msg_iovlen = 1;
         messages[1].msg_hdr.msg_iov = &parts[1];
         messages[1].msg_hdr.msg_iovlen = 2;
         SAY(sendmmsg(fd, messages, 2, 0));
         SAY(messages[0].msg_len);
         SAY(messages[1].msg_len);
         SAY(sendmmsg(fd, messages, 0, 0));
         side.hear();
         SAY(sendmmsg(fd, messages, 1, 0));
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"call.messages_at_the_end",
       [](Side& side) {
         const int fd = side.connected();
         ThreeMessages three;
         mmsghdr* const messages = three.messages;
         wait_for(side, fd, POLLRDHUP);
         SAY(recvmmsg(fd, messages, 3, 0, nullptr));
         for (const mmsghdr& message : three.messages) SAY(message.msg_len);
         SAY(recvmsg(fd, &messages[0].msg_hdr, MSG_CMSG_CLOEXEC));
         SAY(messages[0].msg_hdr.msg_flags == MSG_CMSG_CLOEXEC);
       },
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "five!");
         SAY(shutdown(fd, SHUT_WR));
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"call.vectors_with_flags",
       [](Side& side) {
         const int fd = side.connected();
         char buffer[16] = {};
         iovec parts[] = {{buffer, 3}, {buffer + 3, 10}};
         wait_bytes(side, fd, 5);
         SAY(preadv2(fd, parts, 2, 0, 0));
         SAY(preadv2(fd, parts, 2, -1, 0x4000));
         SAY(preadv2(fd, parts, 2, -1, 0));
         side.say_data("received", buffer, 5);
         SAY(preadv2(fd, parts, 2, -1, RWF_HIPRI));
         SAY(preadv(fd, parts, 2, 0));
       },
       [](Side& side) {
         const int fd = side.connected();
         char text[] = "five!";
         iovec parts[] = {{text, 2}, {text + 2, 3}};
         SAY(pwritev2(fd, parts, 2, 0, 0));
         SAY(pwritev2(fd, parts, 2, -1, 0));
         SAY(shutdown(fd, SHUT_WR));
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"call.sendfile",
       [](Side& side) {
         const int fd = side.connected();
         side.say_data("received", recv_to_end(side, fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         const int file = file_of(pattern(3000000));
         SAY(sendfile(fd, file, nullptr, 1000));
         SAY(lseek(file, 0, SEEK_CUR));
         off_t from = 2999000;
         SAY(sendfile(fd, file, &from, 5000));
         SAY(from);
         SAY(sendfile(fd, file, &from, 5000));
         SAY(lseek(file, 0, SEEK_CUR));
         long left = 2999000;
         while (left > 0) {
           const ssize_t now = sendfile(fd, file, nullptr, static_cast<std::size_t>(left));
           if (now <= 0) break;
           left -= now;
         }
         SAY(left);
         off_t negative = -1;
         SAY(sendfile(fd, file, &negative, 5));
         SAY(sendfile(fd, -1, nullptr, 5));
         SAY(sendfile(fd, fd, nullptr, 5));
       }},

      {"call.splice_at_the_end",
       [](Side& side) {
         const int fd = side.connected();
         int ends[2];
         require(pipe(ends) == 0, "pipe");
         require(write(ends[1], "lost", 4) == 4, "write");
         wait_for(side, fd, POLLRDHUP);
         // What is sent first is what the peer resets.
         SAY(splice(ends[0], nullptr, fd, nullptr, 10, 0));
         wait_for(side, fd, POLLERR);
         SAY(splice(fd, nullptr, ends[1], nullptr, 10, 0));
         say_poll(side, fd);
         require(write(ends[1], "kept", 4) == 4, "write");
         signal(SIGPIPE, SIG_IGN);
         SAY(splice(ends[0], nullptr, fd, nullptr, 10, 0));
         char buffer[8] = {};
         SAY(read(ends[0], buffer, sizeof(buffer)));
         SAY(splice(fd, nullptr, ends[1], nullptr, 10, 0));
       },
       [](Side& side) {
         const int fd = side.connected();
         SAY(close(fd));
       }},

      {"call.sendfile_at_the_end",
       [](Side& side) {
         const int fd = side.connected();
         const int file = file_of(pattern(100));
         wait_for(side, fd, POLLRDHUP);
         signal(SIGPIPE, SIG_IGN);
         off_t offset = 0;
         SAY(sendfile(fd, file, &offset, 0));
         SAY(sendfile(fd, file, &offset, 40));
         SAY(offset);
         wait_for(side, fd, POLLERR);
         SAY(sendfile(fd, file, &offset, 40));
         SAY(offset);
         SAY(sendfile(fd, file, nullptr, 40));
         SAY(lseek(file, 0, SEEK_CUR));
       },
       [](Side& side) {
         const int fd = side.connected();
         SAY(close(fd));
       }},

      {"call.many_messages_after_a_reset",
       [](Side& side) {
         // The reset comes before the bytes, and one that ends a call is kept for the next.
         const int fd = side.connected();
         wait_bytes(side, fd, 25);
         side.tell();
         wait_for(side, fd, POLLERR);
         ThreeMessages three;
         SAY(recvmmsg(fd, three.messages, 3, 0, nullptr));
         SAY(recvmmsg(fd, three.messages, 3, 0, nullptr));
         SAY(three.messages[0].msg_len);
         SAY(three.messages[1].msg_len);
         SAY(three.messages[2].msg_len);
       },
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, std::string(25, 'x'));
         side.hear();
         const linger reset{1, 0};
         SAY(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)));
         SAY(close(fd));
       }},

      {"call.splice",
       [](Side& side) {
         const int fd = side.connected();
         int ends[2];
         require(pipe(ends) == 0, "pipe");
         wait_bytes(side, fd, 1000);
         SAY(splice(fd, nullptr, ends[1], nullptr, 600, 0));
         SAY(splice(fd, nullptr, ends[1], nullptr, 600, 0));
         Bytes buffer(1000);
         SAY(read(ends[0], buffer.data(), 1000));
         side.say_data("received", buffer);
         set_blocking(fd, false);
         SAY(splice(fd, nullptr, ends[1], nullptr, 600, 0));
         set_blocking(fd, true);
         off_t offset = 0;
         SAY(splice(fd, &offset, ends[1], nullptr, 600, 0));
         side.tell();
         wait_for(side, fd, POLLIN);
         SAY(splice(fd, nullptr, ends[1], nullptr, 600, 0));
       },
       [](Side& side) {
         const int fd = side.connected();
         int ends[2];
         require(pipe(ends) == 0, "pipe");
         const Bytes data = pattern(1000);
         SAY(write(ends[1], data.data(), 1000));
         SAY(splice(ends[0], nullptr, fd, nullptr, 400, SPLICE_F_MORE));
         SAY(splice(ends[0], nullptr, fd, nullptr, 4000, SPLICE_F_MOVE));
         side.hear();
         SAY(shutdown(fd, SHUT_WR));
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"call.bad_arguments",
       [](Side& side) {
         const int fd = side.connected();
         char buffer[8] = {};
         iovec part{buffer, sizeof(buffer)};
         SAY(readv(fd, &part, unknown(-1)));
         SAY(readv(fd, &part, 0));
         SAY(writev(fd, &part, unknown(-1)));
         SAY(writev(fd, &part, 0));
         SAY(writev(fd, &part, unknown(IOV_MAX + 1)));
         msghdr message{};
         message.msg_iov = &part;
         message.msg_iovlen = IOV_MAX + 1;
         SAY(sendmsg(fd, &message, 0));
         SAY(recvmsg(fd, &message, 0));
         SAY(pread(fd, buffer, 8, 0));
         SAY(pwrite(fd, buffer, 8, 0));
         SAY(lseek(fd, 0, SEEK_CUR));
         SAY(ftruncate(fd, 0));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         side.say_data("rest", recv_to_end(side, fd));
       }},

      // Nothing to send, and no message.
      {"call.nothing_after_shutdown",
       [](Side& side) {
         const int fd = side.connected();
         char buffer[8];
         const iovec empty[2] = {{buffer, 0}, {nullptr, 0}};
         SAY(shutdown(fd, SHUT_WR));
         SAY(writev(fd, empty, 2));
         SAY(readv(fd, empty, 2));
         SAY(sendmsg(fd, unknown<const msghdr*>(nullptr), MSG_NOSIGNAL));
         SAY(recvmsg(fd, unknown<msghdr*>(nullptr), MSG_DONTWAIT));
         SAY(send(fd, buffer, 0, MSG_NOSIGNAL));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         SAY(close(fd));
       }},

      {"call.bad_states",
       [](Side& side) {
         char buffer[8] = {};
         SAY(send(-1, buffer, 8, 0));
         SAY(recv(-1, buffer, 8, 0));
         SAY(send(500, buffer, 8, 0));
         SAY(recv(0, buffer, 8, 0));
         SAY(send(1, buffer, 8, 0));
         SAY(listen(1, 8));
         SAY(accept(1, nullptr, nullptr));
         SAY(shutdown(0, SHUT_WR));
         const int fresh = socket(AF_INET, SOCK_STREAM, 0);
         SAY(recv(fresh, buffer, 8, 0));
         SAY(read(fresh, buffer, 8));
         SAY(send(fresh, buffer, 8, MSG_NOSIGNAL));
         SAY(accept(fresh, nullptr, nullptr));
         SAY(shutdown(fresh, SHUT_RDWR));
         const int listener = socket(AF_INET, SOCK_STREAM, 0);
         SAY(listen(listener, 1));
         SAY(recv(listener, buffer, 8, 0));
         SAY(send(listener, buffer, 8, MSG_NOSIGNAL));
         SAY(accept4(listener, nullptr, nullptr, 1));
         SAY(socket(AF_INET, 77, 0));
         SAY(socket(AF_INET, SOCK_STREAM, 77));
         SAY(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
         SAY(socket(12345, SOCK_STREAM, 0));
       },
       [](Side&) {}},

      {"call.other_sockets",
       [](Side& side) {
         int pair[2];
         char buffer[64] = {};
         SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
         SAY(send(pair[0], "unix", 4, 0));
         SAY(recv(pair[1], buffer, sizeof(buffer), 0));
         sockaddr_in address{};
         address.sin_family = AF_INET;
         address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
         socklen_t length = sizeof(address);
         const int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
         SAY(bind(datagrams, reinterpret_cast<sockaddr*>(&address), length));
         SAY(getsockname(datagrams, reinterpret_cast<sockaddr*>(&address), &length));
         SAY(connect(datagrams, reinterpret_cast<sockaddr*>(&address), length));
         SAY(send(datagrams, "one", 3, 0));
         SAY(send(datagrams, "three", 5, 0));
         SAY(recv(datagrams, buffer, sizeof(buffer), 0));
         SAY(recv(datagrams, buffer, 2, MSG_TRUNC));
         SAY(recv(datagrams, buffer, sizeof(buffer), MSG_DONTWAIT));
       },
       [](Side&) {}},
  };
}

}  // namespace posix_cases
