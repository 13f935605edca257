#include "preload/stream.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>

#include "preload/real.h"
#include "preload/waiting.h"

namespace leat::preload {
namespace {

using Vectors = std::array<iovec, 64>;

// Some of the caller's vectors, from an offset on: what is left to do.
class Rest {
 public:
  Rest(const iovec* vectors, std::size_t count) : from_(vectors), count_(count) {
    if (vectors == nullptr && count != 0) {
      refused_ = EFAULT;
      return;
    }
    std::uintptr_t addresses = 0;
    std::size_t lengths = 0;
    for (std::size_t i = 0; i < count; ++i) {
      left_ += vectors[i].iov_len;
      addresses |= reinterpret_cast<std::uintptr_t>(vectors[i].iov_base);
      lengths |= vectors[i].iov_len;
    }
    // As the kernel, which looks at the lengths of vectors only; its own is the upper half.
    if (count > 1 && lengths > SSIZE_MAX) {
      refused_ = EINVAL;
    } else if (addresses > INTPTR_MAX) {
      refused_ = EFAULT;
    }
  }

  // The errno of what is wrong before anything is done, or 0.
  int refused() const { return refused_; }

  std::size_t bytes() const { return left_; }

  // The next vectors, as many as fit.
  std::size_t next(Vectors& vectors) const {
    std::size_t used = 0;
    std::size_t skip = offset_;
    std::size_t left = left_;
    for (std::size_t i = at_; left != 0 && used < vectors.size(); ++i) {
      const std::size_t bytes = std::min(from_[i].iov_len - skip, left);
      if (bytes != 0)
        vectors[used++] = {.iov_base = static_cast<char*>(from_[i].iov_base) + skip,
                           .iov_len = bytes};
      left -= bytes;
      skip = 0;
    }
    return used;
  }

  // Leaves the last byte out, which is what comes after the rest.
  void hold_last_back() { --left_; }
  const void* held_back() {
    while (from_[at_].iov_len == offset_) {
      ++at_;
      offset_ = 0;
    }
    return static_cast<const char*>(from_[at_].iov_base) + offset_;
  }

  void advance(std::size_t bytes) {
    left_ -= bytes;
    while (at_ < count_ && bytes >= from_[at_].iov_len - offset_) {
      bytes -= from_[at_].iov_len - offset_;
      offset_ = 0;
      ++at_;
    }
    offset_ += bytes;
  }

 private:
  const iovec* from_;
  std::size_t count_;
  std::size_t at_ = 0;
  std::size_t offset_ = 0;
  std::size_t left_ = 0;
  int refused_ = 0;
};

// How many vectors come before one that points to the first page, which is nobody's: the bad
// pointer that programs have. Others are faults.
std::size_t before_null(const Vectors& vectors, std::size_t count) {
  constexpr std::uintptr_t kFirstPage = 4096;
  std::size_t good = 0;
  while (good < count && reinterpret_cast<std::uintptr_t>(vectors[good].iov_base) >= kFirstPage)
    ++good;
  return good;
}

std::size_t bytes_of(const Vectors& vectors, std::size_t count) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) bytes += vectors[i].iov_len;
  return bytes;
}

thread_local int undecided = EAGAIN;

ssize_t fail(int error) {
  errno = error;
  return -1;
}

ssize_t broken_pipe(int error, int flags) {
  // As the kernel: the signal goes to the thread that writes.
  if (error == EPIPE && (flags & MSG_NOSIGNAL) == 0) pthread_kill(pthread_self(), SIGPIPE);
  return fail(error);
}

}  // namespace

int undecided_error() noexcept { return undecided; }
void set_undecided_error(int error) noexcept { undecided = error; }

ssize_t receive(int fd, Connection& connection, const iovec* vectors, std::size_t count,
                int flags) {
  if (connection.memory() == nullptr) return fail(undecided_error());
  if ((flags & MSG_OOB) != 0 || (flags & MSG_ERRQUEUE) != 0) {
    // Urgent data goes its own way, through the kernel.
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(vectors);
    message.msg_iovlen = count;
    return real().recvmsg(fd, &message, flags);
  }
  if (connection.own().receive_lock.held_here()) return fail(EAGAIN);
  const bool peek = (flags & MSG_PEEK) != 0;
  const bool discard = (flags & MSG_TRUNC) != 0;
  Rest rest(vectors, count);
  if (rest.refused() != 0) return fail(rest.refused());
  // Peeking at all of it takes place once all is there: nothing is taken that could be added to.
  std::size_t least = peek && (flags & MSG_WAITALL) != 0
                          ? std::clamp<std::size_t>(rest.bytes(), 1, connection.most_unread())
                          : 1;
  ssize_t done = 0;
  Patience patience(fd, Want::kData);
  Vectors part;
  for (;;) {
    int state = 0;
    if (connection.readable_bytes() < least) state = connection.receive_state(fd);
    if (least > 1 && (connection.poll_mask() & POLLRDHUP) != 0) least = 1;
    const bool enough = connection.readable_bytes() >= least;
    if (enough && rest.bytes() == 0) return 0;
    int error = 0;
    if (!enough && state == 0)
      error = (flags & MSG_DONTWAIT) != 0 ? EAGAIN
                                          : wait_for(fd, connection, patience, least, done > 0);
    if (!enough && state == 0 && error == 0) continue;
    if (error == EAGAIN && connection.is_found_gone(fd)) continue;
    const std::size_t wanted = rest.next(part);
    const std::size_t good = discard ? wanted : before_null(part, wanted);
    if (good < wanted && connection.readable_bytes() > bytes_of(part, good)) [[unlikely]]
      return done > 0 ? done : fail(EFAULT);
    const std::size_t got = connection.take(fd, part.data(), good, peek, discard);
    if (got == Connection::kInUse) return done > 0 ? done : fail(EAGAIN);
    if (got != 0) {
      done += static_cast<ssize_t>(got);
      rest.advance(got);
      if (peek || (flags & MSG_WAITALL) == 0 || rest.bytes() == 0) return done;
      continue;
    }
    if (state < 0 && done > 0) connection.own().error.store(-state);
    if (done > 0 || state > 0) return done;
    if (state < 0) return fail(-state);
    if (error != 0) return fail(error);
  }
}

ssize_t send(int fd, Connection& connection, const iovec* vectors, std::size_t count, int flags) {
  if (connection.memory() == nullptr) return fail(undecided_error());
  if (connection.own().send_lock.held_here()) return fail(EAGAIN);
  Rest rest(vectors, count);
  const std::size_t wanted = rest.bytes();
  if (rest.refused() != 0) return fail(rest.refused());
  if (wanted > SSIZE_MAX) return fail(EINVAL);
  // The last byte is the urgent one, which goes its own way after the others.
  const bool urgent = (flags & MSG_OOB) != 0 && wanted != 0;
  if (urgent) rest.hold_last_back();
  ssize_t done = 0;
  Patience patience(fd, Want::kRoom);
  Vectors part;
  do {
    const int state = connection.send_state(fd);
    if (state < 0) {
      if (done > 0) {
        connection.own().error.store(-state);
        return done;
      }
      return broken_pipe(-state, flags);
    }
    const std::size_t parts = rest.next(part);
    if (before_null(part, parts) < parts) [[unlikely]]
      return done > 0 ? done : fail(EFAULT);
    if (state > 0) {
      if (wanted != 0) connection.sent_to_nobody(fd);
      return static_cast<ssize_t>(wanted);
    }
    const std::size_t put = connection.put(fd, part.data(), parts);
    if (put == Connection::kInUse) return done > 0 ? done : fail(EAGAIN);
    done += static_cast<ssize_t>(put);
    rest.advance(put);
    if (rest.bytes() == 0 || put != 0) continue;
    if ((flags & MSG_DONTWAIT) != 0) return done > 0 ? done : fail(EAGAIN);
    const int error = wait_for(fd, connection, patience, rest.bytes(), done > 0);
    if (error != 0) return done > 0 ? done : fail(error);
  } while (rest.bytes() != 0);
  if (!urgent) return done;
  const ssize_t sent = real().send(fd, rest.held_back(), 1, flags);
  return sent < 0 && done > 0 ? done : done + sent;
}

}  // namespace leat::preload
