// Calls that move bytes.
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "preload/call.h"
#include "preload/passing.h"
#include "preload/stream.h"
#include "preload/undisturbed.h"
#include "preload/waiting.h"

namespace leat::preload {

namespace {

// As a blocking call does until the offer has come.
void await_decision(int fd, Reference& object) {
  const auto deadline = socket_deadline(fd, SO_RCVTIMEO);
  while (object.awaits_offer() && posix::Clock::now() < deadline) {
    auto came = SignalWatch::Came::kNothing;
    {
      const SignalWatch watch;
      // The connector tells by a byte that it has left its offer.
      pollfd told{.fd = fd, .events = POLLIN};
      if (real().poll(&told, 1, kDecisionNap) > 0) {
        decide(fd, object);
        // Another acceptor holds it, or it is lost.
        if (object.awaits_offer()) real().poll(nullptr, 0, 1);
      }
      came = watch.look();
    }
    decide(fd, object);
    if (came == SignalWatch::Came::kInterrupts) {
      set_undecided_error(EINTR);
      return;
    }
  }
}

}  // namespace

Reference find_carried(int fd, bool wait) {
  Reference object = find_current(fd);
  if (object.is(Kind::kConnection)) [[likely]]
    return object;
  if (!object.is_undecided()) return {};
  if (object.awaits_offer()) {
    decide(fd, object);
    set_undecided_error(EAGAIN);
    if (wait && object.awaits_offer() && !is_nonblocking(fd)) await_decision(fd, object);
    if (object.is(Kind::kConnection) || object.awaits_offer()) return object;
    return {};
  }
  // Before the handshake's end the kernel would send our bytes with it.
  if (wait && !is_nonblocking(fd)) {
    pollfd ended{.fd = fd, .events = POLLOUT};
    const int kept_errno = errno;
    real().poll(&ended, 1, -1);
    errno = kept_errno;
  }
  decide(fd, object);
  // Another thread may be about to.
  while (object.is_undecided() && object->deciding.load(std::memory_order_acquire) == process_id())
    sched_yield();
  return object.is(Kind::kConnection) ? std::move(object) : Reference();
}

namespace {

ssize_t receive_part(int fd, Connection& connection, void* bytes, std::size_t count, int flags) {
  const iovec part = posix::one_part(bytes, count);
  return receive(fd, connection, &part, 1, flags);
}

ssize_t send_part(int fd, Connection& connection, const void* bytes, std::size_t count, int flags) {
  const iovec part = posix::one_part(bytes, count);
  return send(fd, connection, &part, 1, flags);
}

// readv() and its like. Like writev(), they do not look at the socket if no bytes are asked for;
// write() and sending calls do.
ssize_t receive_vectors(int fd, Connection& connection, const iovec* vectors, int count,
                        int flags) {
  const auto parts = static_cast<std::size_t>(count);
  if (const int bad = posix::check_count(vectors, parts, EINVAL); bad != 0) return result_of(bad);
  if (posix::holds_nothing(vectors, parts)) return 0;
  return receive(fd, connection, vectors, parts, flags);
}

ssize_t send_vectors(int fd, Connection& connection, const iovec* vectors, int count, int flags) {
  const auto parts = static_cast<std::size_t>(count);
  if (const int bad = posix::check_count(vectors, parts, EINVAL); bad != 0) return result_of(bad);
  if (posix::holds_nothing(vectors, parts)) return 0;
  return send(fd, connection, vectors, parts, flags);
}

// Those of preadv2() and pwritev2() that the kernel knows, also where they mean nothing.
constexpr int kReadWriteFlags = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND;
// As those of recv() and send().
int flags_of(int how) { return (how & RWF_NOWAIT) != 0 ? MSG_DONTWAIT : 0; }

ssize_t send_message(int fd, Connection& connection, const msghdr* message, int flags) {
  if (const int bad = posix::check_message(message); bad != 0) return result_of(bad);
  return send(fd, connection, message->msg_iov, message->msg_iovlen, flags);
}

ssize_t receive_message(int fd, Connection& connection, msghdr* message, int flags) {
  if (const int bad = posix::check_message(message); bad != 0) return result_of(bad);
  if ((flags & MSG_ERRQUEUE) != 0) return real().recvmsg(fd, message, flags);
  const ssize_t got = receive(fd, connection, message->msg_iov, message->msg_iovlen, flags);
  if (got >= 0) posix::no_control(*message, flags);
  return got;
}

}  // namespace
}  // namespace leat::preload

using namespace leat::preload;  // NOLINT: the functions below are C's

// The C library's headers call the parameters otherwise.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)

LEAT_CALL ssize_t read(int fd, void* bytes, size_t count) {
  const Reference object = carried(fd);
  if (!object) return real().read(fd, bytes, count);
  if (count == 0) return 0;  // where recv() waits
  return receive_part(fd, object->connection, bytes, count, 0);
}

LEAT_CALL ssize_t write(int fd, const void* bytes, size_t count) {
  const Reference object = carried(fd);
  if (!object) return real().write(fd, bytes, count);
  return send_part(fd, object->connection, bytes, count, 0);
}

LEAT_CALL ssize_t readv(int fd, const iovec* vectors, int count) {
  const Reference object = carried(fd);
  if (!object) return real().readv(fd, vectors, count);
  return receive_vectors(fd, object->connection, vectors, count, 0);
}

LEAT_CALL ssize_t writev(int fd, const iovec* vectors, int count) {
  const Reference object = carried(fd);
  if (!object) return real().writev(fd, vectors, count);
  return send_vectors(fd, object->connection, vectors, count, 0);
}

LEAT_CALL ssize_t preadv64v2(int fd, const iovec* vectors, int count, off64_t offset, int flags) {
  const Reference object = carried(fd, flags_of(flags));
  if (!object || offset != -1 || (flags & ~kReadWriteFlags) != 0)
    return real().preadv64v2(fd, vectors, count, offset, flags);
  return receive_vectors(fd, object->connection, vectors, count, flags_of(flags));
}

LEAT_CALL ssize_t preadv2(int fd, const iovec* vectors, int count, off_t offset, int flags) {
  return preadv64v2(fd, vectors, count, offset, flags);
}

LEAT_CALL ssize_t pwritev64v2(int fd, const iovec* vectors, int count, off64_t offset, int flags) {
  const Reference object = carried(fd, flags_of(flags));
  if (!object || offset != -1 || (flags & ~kReadWriteFlags) != 0)
    return real().pwritev64v2(fd, vectors, count, offset, flags);
  return send_vectors(fd, object->connection, vectors, count, flags_of(flags));
}

LEAT_CALL ssize_t pwritev2(int fd, const iovec* vectors, int count, off_t offset, int flags) {
  return pwritev64v2(fd, vectors, count, offset, flags);
}

LEAT_CALL ssize_t recv(int fd, void* bytes, size_t count, int flags) {
  const Reference object = carried(fd, flags);
  if (!object) return real().recv(fd, bytes, count, flags);
  return receive_part(fd, object->connection, bytes, count, flags);
}

LEAT_CALL ssize_t recvfrom(int fd, void* bytes, size_t count, int flags, sockaddr* from,
                           socklen_t* from_bytes) {
  const Reference object = carried(fd, flags);
  if (!object) return real().recvfrom(fd, bytes, count, flags, from, from_bytes);
  const ssize_t got = receive_part(fd, object->connection, bytes, count, flags);
  if (got >= 0 && from != nullptr && from_bytes != nullptr) *from_bytes = 0;
  return got;
}

LEAT_CALL ssize_t recvmsg(int fd, msghdr* message, int flags) {
  const Reference object = carried(fd, flags);
  if (!object) return receive_with_rights(fd, message, flags);
  return receive_message(fd, object->connection, message, flags);
}

LEAT_CALL ssize_t send(int fd, const void* bytes, size_t count, int flags) {
  const Reference object = carried(fd, flags);
  if (!object) return real().send(fd, bytes, count, flags);
  return send_part(fd, object->connection, bytes, count, flags);
}

LEAT_CALL ssize_t sendto(int fd, const void* bytes, size_t count, int flags, const sockaddr* to,
                         socklen_t to_bytes) {
  const Reference object = carried(fd, flags);
  if (!object) return real().sendto(fd, bytes, count, flags, to, to_bytes);
  return send_part(fd, object->connection, bytes, count, flags);
}

LEAT_CALL ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  const Reference object = carried(fd, flags);
  if (!object) return send_with_rights(fd, message, flags);
  return send_message(fd, object->connection, message, flags);
}

LEAT_CALL int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  const Reference object = carried(fd, flags);
  if (object && messages == nullptr && count != 0) return fail(EFAULT);
  const bool passes = !object && messages != nullptr &&
                      std::any_of(messages, messages + count,
                                  [](const mmsghdr& one) { return passes_ours(one.msg_hdr); });
  if (!object && !passes) return real().sendmmsg(fd, messages, count, flags);
  unsigned done = 0;
  for (; done < count; ++done) {
    const msghdr* message = &messages[done].msg_hdr;
    const ssize_t sent = object ? send_message(fd, object->connection, message, flags)
                                : send_with_rights(fd, message, flags);
    if (sent < 0) return done != 0 ? static_cast<int>(done) : -1;
    messages[done].msg_len = static_cast<unsigned>(sent);
  }
  return static_cast<int>(done);
}

LEAT_CALL int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  const Reference object = carried(fd, flags);
  const bool gets = !object && messages != nullptr &&
                    std::any_of(messages, messages + count, [fd](const mmsghdr& one) {
                      return may_get_rights(fd, &one.msg_hdr);
                    });
  if (!object && !gets) return real().recvmmsg(fd, messages, count, flags, timeout);
  // Like the kernel: an error that comes before the bytes is reported, one after some is kept.
  const bool connected = object && object->connection.memory() != nullptr;
  if (connected && (flags & MSG_ERRQUEUE) == 0) {
    if (const int error = object->connection.take_known_error(fd); error != 0) return fail(error);
  }
  if (object && messages == nullptr && count != 0) return fail(EFAULT);
  const posix::Deadline deadline = posix::deadline_of(timeout);
  unsigned done = 0;
  for (; done < count; ++done) {
    // Like the kernel, which looks at the time after each message, not while it waits.
    if (done != 0 && posix::Clock::now() >= deadline) break;
    const bool wait = done == 0 || (flags & MSG_WAITFORONE) == 0;
    const int each = (flags & ~MSG_WAITFORONE) | (wait ? 0 : MSG_DONTWAIT);
    msghdr* message = &messages[done].msg_hdr;
    const ssize_t got = object ? receive_message(fd, object->connection, message, each)
                               : receive_with_rights(fd, message, each);
    if (got < 0 && done != 0 && connected && errno != EAGAIN)
      object->connection.own().tcp.fail(errno);
    if (got < 0) return done != 0 ? static_cast<int>(done) : -1;
    messages[done].msg_len = static_cast<unsigned>(got);
  }
  return static_cast<int>(done);
}

namespace {

// sendfile(2) to a carried connection: piece by piece, never taking more from the file than was
// sent.
ssize_t send_file(int to, Connection& connection, int from, off64_t* offset, std::size_t count) {
  std::array<char, 65536> piece;
  off64_t at = offset != nullptr ? *offset : lseek64(from, 0, SEEK_CUR);
  if (at < 0) {
    // A file that cannot seek cannot be sent, but that is another error here.
    if (offset != nullptr || errno == ESPIPE) errno = EINVAL;
    return -1;
  }
  std::size_t done = 0;
  int error = 0;
  while (done < count && error == 0) {
    const std::size_t wanted = std::min(piece.size(), count - done);
    const ssize_t got = pread64(from, piece.data(), wanted, at);
    if (got < 0) error = errno;
    if (got <= 0) break;
    const ssize_t sent = send_part(to, connection, piece.data(), static_cast<std::size_t>(got), 0);
    if (sent < 0) error = errno;
    if (sent <= 0) break;
    at += sent;
    done += static_cast<std::size_t>(sent);
    if (sent < got) break;
  }
  if (offset != nullptr) {
    *offset = at;
  } else {
    lseek64(from, at, SEEK_SET);
  }
  return done == 0 && error != 0 ? fail(error) : static_cast<ssize_t>(done);
}

// The errno of the kernel's splice() between a socket and what should be a pipe, or 0. `wrong`: the
// end of the pipe that cannot be used, O_RDONLY or O_WRONLY.
int splice_refuses(int pipe, int wrong, const off64_t* pipe_offset, const off64_t* socket_offset,
                   unsigned flags) {
  constexpr unsigned kFlags = SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT;
  struct stat status {};
  if ((flags & ~kFlags) != 0) return EINVAL;
  if (fstat(pipe, &status) != 0) return EBADF;
  if ((real().fcntl(pipe, F_GETFL, nullptr) & O_ACCMODE) == wrong) return EBADF;
  if (!S_ISFIFO(status.st_mode)) return EINVAL;
  if (pipe_offset != nullptr) return ESPIPE;
  return socket_offset != nullptr ? EINVAL : 0;
}

// Waits until the pipe of a splice has bytes, or room. Returns 0, or an errno that says why not.
// Like the kernel, which looks at the socket only afterwards, and for which SPLICE_F_NONBLOCK
// concerns the pipe alone.
int await_pipe(pollfd& pipe, unsigned flags) {
  const bool wait = (flags & SPLICE_F_NONBLOCK) == 0 && !is_nonblocking(pipe.fd);
  if (real().poll(&pipe, 1, 0) != 0) return 0;
  while (wait) {
    // In naps: the end of a sleep in the kernel would not tell whether the call is to go on.
    constexpr int kNap = 10;  // ms
    const SignalWatch watch;
    if (real().poll(&pipe, 1, kNap) != 0) return 0;
    if (watch.look() == SignalWatch::Came::kInterrupts) return EINTR;
  }
  return EAGAIN;
}

// A pipe to a connection: what was read from the pipe must be sent, so no more is read than there
// is room for.
ssize_t splice_out(int from, int to, Connection& connection, std::size_t count, unsigned flags) {
  std::array<char, 65536> piece;
  pollfd pipe{.fd = from, .events = POLLIN};
  if (const int error = await_pipe(pipe, flags); error != 0) return fail(error);
  if ((pipe.revents & POLLIN) == 0) return 0;  // its writers are gone
  const int state = connection.send_state(to, true);
  if (state < 0) return send_part(to, connection, piece.data(), 1, 0);  // which tells it
  Patience patience(to, Want::kRoom);
  while (state == 0 && !connection.room(piece.size())) {
    if (is_nonblocking(to)) return fail(EAGAIN);
    if (const int error = wait_for(to, connection, patience, piece.size(), false); error != 0)
      return fail(error);
    if ((connection.poll_mask() & POLLOUT) != 0) break;  // also at its end
  }
  const std::size_t room =
      std::clamp<std::size_t>(connection.free_bytes(), 1, std::min(count, piece.size()));
  const ssize_t got = real().read(from, piece.data(), room);
  if (got <= 0) return got;
  return send_part(to, connection, piece.data(), static_cast<std::size_t>(got), 0);
}

// A connection to a pipe: only what the pipe took is taken.
ssize_t splice_in(int from, Connection& connection, int to, std::size_t count, unsigned flags) {
  std::array<char, 65536> piece;
  pollfd pipe{.fd = to, .events = POLLOUT};
  if (const int error = await_pipe(pipe, flags); error != 0) return fail(error);
  if ((pipe.revents & POLLERR) != 0) return real().write(to, piece.data(), 1);  // its readers too
  const ssize_t there =
      receive_part(from, connection, piece.data(), std::min(count, piece.size()), MSG_PEEK);
  if (there <= 0) return there;
  // As much as the pipe has room for, where the kernel can tell.
  const iovec bytes = posix::one_part(piece.data(), static_cast<std::size_t>(there));
  ssize_t put = real().pwritev64v2(to, &bytes, 1, -1, RWF_NOWAIT);
  if (put < 0 && errno == EOPNOTSUPP) put = real().write(to, piece.data(), bytes.iov_len);
  if (put <= 0) return put;
  return receive_part(from, connection, piece.data(), static_cast<std::size_t>(put), MSG_DONTWAIT);
}

}  // namespace

LEAT_CALL ssize_t sendfile64(int to, int from, off64_t* offset, size_t count) noexcept {
  const Uncancelled uncancelled;  // as the kernel's own
  const Reference object = carried(to);
  if (!object) return real().sendfile64(to, from, offset, count);
  if (object.awaits_offer()) return fail(undecided_error());
  return send_file(to, object->connection, from, offset, count);
}

LEAT_CALL ssize_t sendfile(int to, int from, off_t* offset, size_t count) noexcept {
  return sendfile64(to, from, offset, count);
}

LEAT_CALL ssize_t splice(int from, off64_t* from_offset, int to, off64_t* to_offset, size_t count,
                         unsigned flags) {
  if (const Reference object = carried(to)) {
    if (object.awaits_offer()) return fail(undecided_error());
    if (const int error = splice_refuses(from, O_WRONLY, from_offset, to_offset, flags); error != 0)
      return fail(error);
    return count == 0 ? 0 : splice_out(from, to, object->connection, count, flags);
  }
  if (const Reference object = carried(from)) {
    if (object.awaits_offer()) return fail(undecided_error());
    if (const int error = splice_refuses(to, O_RDONLY, to_offset, from_offset, flags); error != 0)
      return fail(error);
    return count == 0 ? 0 : splice_in(from, object->connection, to, count, flags);
  }
  return real().splice(from, from_offset, to, to_offset, count, flags);
}

// What programs built with _FORTIFY_SOURCE call instead; the names are the C library's.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
LEAT_CALL ssize_t __read_chk(int fd, void* bytes, size_t count, size_t room) {
  if (count > room) abort();
  return read(fd, bytes, count);
}

LEAT_CALL ssize_t __recv_chk(int fd, void* bytes, size_t count, size_t room, int flags) {
  if (count > room) abort();
  return recv(fd, bytes, count, flags);
}

LEAT_CALL ssize_t __recvfrom_chk(int fd, void* bytes, size_t count, size_t room, int flags,
                                 sockaddr* from, socklen_t* from_bytes) {
  if (count > room) abort();
  return recvfrom(fd, bytes, count, flags, from, from_bytes);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
