#include "preload/stream.h"

#include <cerrno>

#include "posix/stream_calls.h"
#include "preload/real.h"
#include "preload/waiting.h"

namespace leat::preload {
namespace {

thread_local int undecided = EAGAIN;

// One call of the program on a carried connection: an End of posix/stream_calls.h.
class CarriedCall {
 public:
  CarriedCall(int fd, Connection& connection, Want want) noexcept
      : fd_(fd), connection_(connection), patience_(fd, want) {}

  std::size_t readable_bytes() const { return connection_.readable_bytes(); }
  std::size_t most_unread() const { return connection_.most_unread(); }
  bool nothing_follows() const { return (connection_.poll_mask() & POLLRDHUP) != 0; }
  long take(posix::Buffers& to, bool peek) { return connection_.take(fd_, to, peek); }
  long put(posix::Buffers& from) { return connection_.put(fd_, from); }
  int receive_state(bool begun) { return connection_.receive_state(fd_, begun); }
  int send_state(bool begun) { return connection_.send_state(fd_, begun); }
  bool sending_ended() const { return connection_.own().tcp.sending_ended(); }
  static bool flushed() { return true; }
  void drop(std::size_t bytes) {
    dropped_ = true;
    if (bytes != 0) connection_.sent_to_nobody(fd_);
  }
  bool dropped() const { return dropped_; }
  bool blocks(int flags) const { return (flags & MSG_DONTWAIT) == 0 && !is_nonblocking(fd_); }
  bool look_closely() { return connection_.is_found_gone(fd_); }
  int wait_to_receive(std::size_t bytes, bool some) { return wait(bytes, some); }
  int wait_to_send(std::size_t bytes, bool some) { return wait(bytes, some); }

 private:
  int wait(std::size_t bytes, bool some) {
    return wait_for(fd_, connection_, patience_, bytes, some);
  }

  const int fd_;
  Connection& connection_;
  Patience patience_;
  bool dropped_ = false;
};

}  // namespace

int undecided_error() noexcept { return undecided; }
void set_undecided_error(int error) noexcept { undecided = error; }

ssize_t receive(int fd, Connection& connection, const iovec* vectors, std::size_t count,
                int flags) {
  if (connection.memory() == nullptr) return result_of(-undecided_error());
  if ((flags & MSG_OOB) != 0 || (flags & MSG_ERRQUEUE) != 0) {
    // Urgent data goes its own way, through the kernel.
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(vectors);
    message.msg_iovlen = count;
    return real().recvmsg(fd, &message, flags);
  }
  if (connection.own().receive_lock.held_here()) return result_of(-EAGAIN);
  CarriedCall call(fd, connection, Want::kData);
  return result_of(
      posix::receive(call, posix::Buffers(vectors, count, (flags & MSG_TRUNC) != 0), flags));
}

ssize_t send(int fd, Connection& connection, const iovec* vectors, std::size_t count, int flags) {
  if (connection.memory() == nullptr) return result_of(-undecided_error());
  if (connection.own().send_lock.held_here()) return result_of(-EAGAIN);
  posix::Buffers from(vectors, count);
  CarriedCall call(fd, connection, Want::kRoom);
  // The last byte is the urgent one, which goes its own way after the others.
  if ((flags & MSG_OOB) == 0 || from.refused() != 0 || from.left() == 0)
    return result_of(posix::send(call, from, flags));
  const void* const urgent = from.hold_last_back();
  const auto others = static_cast<long>(from.left());
  const long sent = posix::send(call, from, flags);
  if (sent < others) return result_of(sent);
  if (call.dropped()) {
    connection.sent_to_nobody(fd);
    return sent + 1;
  }
  connection.count_urgent(true);
  const ssize_t last = real().send(fd, urgent, 1, flags);
  if (last < 0) connection.count_urgent(false);
  return last < 0 && sent > 0 ? sent : sent + last;
}

}  // namespace leat::preload
