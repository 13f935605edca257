// What is left of a connection after one end, then another: the peer's orderly end and a send, a
// half-closed peer that resets, a peer killed with bytes unread.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "case.h"

namespace posix_cases {
namespace {

void say_recv(const Side& side, int fd) {
  char buffer[8];
  SAY(recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT));
}

void say_send(const Side& side, int fd) { SAY(send(fd, "x", 1, MSG_NOSIGNAL)); }

void say_shutdown(const Side& side, int fd) { SAY(shutdown(fd, SHUT_WR)); }

using Look = void (*)(const Side&, int);

// Each look twice, and what poll says after it: the first may use up what it says.
template <Look... kLooks>
void look(const Side& side, int fd) {
  say_poll(side, fd);
  ((kLooks(side, fd), say_poll(side, fd)), ...);
  ((kLooks(side, fd), say_poll(side, fd)), ...);
}

constexpr linger kReset{1, 0};

void reset(const Side& side, int fd) {
  SAY(setsockopt(fd, SOL_SOCKET, SO_LINGER, &kReset, sizeof(kReset)));
  SAY(close(fd));
}

// The peer has closed in order, and one more byte was sent to it.
template <Look... kLooks>
void sent_to_closed(Side& side) {
  const int fd = side.connected();
  wait_for(side, fd, POLLRDHUP);
  side.say("closed");
  say_poll(side, fd);
  SAY(send(fd, "x", 1, MSG_NOSIGNAL));
  wait_for(side, fd, POLLHUP);
  look<kLooks...>(side, fd);
}

// The same with bytes that were not read before.
template <Look... kLooks>
void sent_to_closed_with_bytes(Side& side) {
  const int fd = side.connected();
  wait_for(side, fd, POLLRDHUP);
  SAY(send(fd, "x", 1, MSG_NOSIGNAL));
  wait_for(side, fd, POLLHUP);
  look<kLooks...>(side, fd);
}

void close_at_once(Side& side) {
  const int fd = side.connected();
  SAY(close(fd));
}

void send_and_close(Side& side) {
  const int fd = side.connected();
  send_text(side, fd, "last words");
  SAY(close(fd));
}

// The peer has shut down its sending, then resets.
template <Look... kLooks>
void half_closed_then_reset(Side& side) {
  const int fd = side.connected();
  wait_for(side, fd, POLLRDHUP);
  say_poll(side, fd);
  side.tell();
  wait_for(side, fd, POLLHUP);
  look<kLooks...>(side, fd);
}

void half_close_and_reset(Side& side) {
  const int fd = side.connected();
  SAY(shutdown(fd, SHUT_WR));
  side.hear();
  reset(side, fd);
}

// The peer has shut down its sending, then closes with bytes unread.
template <Look... kLooks>
void half_closed_then_closed_with_unread(Side& side) {
  const int fd = side.connected();
  wait_for(side, fd, POLLRDHUP);
  send_text(side, fd, "unread");
  wait_for(side, fd, POLLHUP);
  look<kLooks...>(side, fd);
}

void half_close_and_close_with_unread(Side& side) {
  const int fd = side.connected();
  SAY(shutdown(fd, SHUT_WR));
  wait_bytes(side, fd, 6);
  SAY(close(fd));
}

// Waits, without a look at the connection, until the process that has told its number has ended.
void await_death(const Side& side) {
  const int process = static_cast<int>(syscall(SYS_pidfd_open, side.hear(), 0));
  require(process >= 0, "pidfd_open");
  side.tell();
  pollfd ended{process, POLLIN, 0};
  require(poll(&ended, 1, -1) == 1, "the end of the other process");
  close(process);
}

// The peer was killed with bytes unread.
template <Look... kLooks>
void killed_with_unread(Side& side) {
  const int fd = side.connected();
  send_text(side, fd, "unread");
  await_death(side);
  ((kLooks(side, fd), say_poll(side, fd)), ...);
  look<kLooks...>(side, fd);
}

void die_with_unread(Side& side) {
  const int fd = side.connected();
  wait_bytes(side, fd, 6);
  side.tell(getpid());
  side.hear();
  raise(SIGKILL);
}

// The peer has sent, and was killed with bytes unread.
void send_and_die_with_unread(Side& side) {
  const int fd = side.connected();
  send_text(side, fd, "last");
  wait_bytes(side, fd, 6);
  side.tell(getpid());
  side.hear();
  raise(SIGKILL);
}

// This side has shut down its sending when the peer goes with bytes unread.
template <Look... kLooks>
void shut_then_peer_resets(Side& side) {
  const int fd = side.connected();
  send_text(side, fd, "unread");
  SAY(shutdown(fd, SHUT_WR));
  side.tell();
  wait_for(side, fd, POLLHUP);
  look<kLooks...>(side, fd);
}

void close_with_unread(Side& side) {
  const int fd = side.connected();
  side.hear();
  wait_for(side, fd, POLLRDHUP);
  SAY(close(fd));
}

int state_of(int fd) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 ? info.tcpi_state : -1;
}

// Says whether the socket reaches that state.
void say_state(const Side& side, int fd, int state, const char* name) {
  for (int looks = 0; looks < kPatienceMs && state_of(fd) != state; ++looks) sleep_ms(1);
  const int found = state_of(fd);
  side.say(found == state ? std::string(name)
                          : std::string("not ") + name + ", but " + std::to_string(found));
}

}  // namespace

Cases ending_cases() {
  return {
      {"ending.sent_to_closed_recv", sent_to_closed<say_recv, say_socket_error>, close_at_once},
      {"ending.sent_to_closed_send", sent_to_closed<say_send, say_recv>, close_at_once},
      {"ending.sent_to_closed_option", sent_to_closed<say_socket_error, say_recv>, close_at_once},
      {"ending.sent_to_closed_shutdown", sent_to_closed<say_shutdown, say_socket_error>,
       close_at_once},
      {"ending.sent_to_closed_with_bytes", sent_to_closed_with_bytes<say_recv, say_socket_error>,
       send_and_close},
      {"ending.sent_to_closed_with_bytes_send", sent_to_closed_with_bytes<say_send, say_recv>,
       send_and_close},

      {"ending.half_closed_then_reset_recv", half_closed_then_reset<say_recv, say_socket_error>,
       half_close_and_reset},
      {"ending.half_closed_then_reset_send", half_closed_then_reset<say_send, say_recv>,
       half_close_and_reset},
      {"ending.half_closed_then_reset_option", half_closed_then_reset<say_socket_error, say_send>,
       half_close_and_reset},
      {"ending.half_closed_then_reset_shutdown",
       half_closed_then_reset<say_shutdown, say_socket_error>, half_close_and_reset},
      {"ending.half_closed_then_unread_recv",
       half_closed_then_closed_with_unread<say_recv, say_socket_error>,
       half_close_and_close_with_unread},
      {"ending.half_closed_then_unread_send",
       half_closed_then_closed_with_unread<say_send, say_recv>, half_close_and_close_with_unread},

      {"ending.killed_with_unread_recv", killed_with_unread<say_recv, say_socket_error>,
       die_with_unread},
      {"ending.killed_with_unread_send", killed_with_unread<say_send, say_recv>, die_with_unread},
      {"ending.killed_with_unread_shutdown", killed_with_unread<say_shutdown, say_recv>,
       die_with_unread},
      {"ending.killed_with_unread_option", killed_with_unread<say_socket_error, say_shutdown>,
       die_with_unread},
      {"ending.killed_with_unread_after_sending", killed_with_unread<say_recv, say_send>,
       send_and_die_with_unread},
      {"ending.killed_with_unread_after_sending_shutdown",
       killed_with_unread<say_shutdown, say_recv>, send_and_die_with_unread},

      {"ending.shut_then_reset_recv", shut_then_peer_resets<say_recv, say_socket_error>,
       close_with_unread},
      {"ending.shut_then_reset_send", shut_then_peer_resets<say_send, say_recv>, close_with_unread},
      {"ending.shut_then_reset_option", shut_then_peer_resets<say_socket_error, say_shutdown>,
       close_with_unread},

      {"ending.reset_behind_bytes",
       [](Side& side) {
         // The bytes that the peer sent before it closed with others unread.
         const int fd = side.connected();
         send_text(side, fd, "unread");
         wait_bytes(side, fd, 10);
         side.tell();
         wait_for(side, fd, POLLHUP);
         say_poll(side, fd);
         char buffer[4];
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         say_poll(side, fd);
         SAY(recv(fd, buffer, sizeof(buffer), MSG_PEEK));
         say_socket_error(side, fd);
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         SAY(recv(fd, buffer, sizeof(buffer), 0));
         say_send(side, fd);
       },
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "last words");
         side.hear();
         wait_bytes(side, fd, 6);
         SAY(close(fd));
       }},

      {"ending.states",
       [](Side& side) {
         const int fd = side.connected();
         say_state(side, fd, TCP_ESTABLISHED, "TCP_ESTABLISHED");
         side.tell();
         wait_for(side, fd, POLLRDHUP);
         say_state(side, fd, TCP_CLOSE_WAIT, "TCP_CLOSE_WAIT");
         side.tell();
         side.hear();
         SAY(shutdown(fd, SHUT_WR));
         say_state(side, fd, TCP_CLOSE, "TCP_CLOSE");
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         SAY(shutdown(fd, SHUT_WR));
         side.hear();
         say_state(side, fd, TCP_FIN_WAIT2, "TCP_FIN_WAIT2");
         side.tell();
         wait_for(side, fd, POLLHUP);
         SAY(recv(fd, nullptr, 0, 0));
         say_state(side, fd, TCP_CLOSE, "TCP_CLOSE");
       }},

      {"ending.states_of_reset",
       [](Side& side) {
         const int fd = side.connected();
         side.tell();
         wait_for(side, fd, POLLERR);
         say_state(side, fd, TCP_CLOSE, "TCP_CLOSE");
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         reset(side, fd);
       }},
  };
}

}  // namespace posix_cases
