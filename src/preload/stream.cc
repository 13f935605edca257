#include "preload/stream.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>

#include "preload/real.h"
#include "preload/waiting.h"

namespace leat::preload {
namespace {

// Some of the caller's vectors, from an offset on: what is left to do.
class Rest {
 public:
  Rest(const iovec* vectors, std::size_t count) : from_(vectors), count_(count) {
    for (std::size_t i = 0; i < count; ++i) left_ += vectors[i].iov_len;
  }

  std::size_t bytes() const { return left_; }

  // The next vectors, as many as fit.
  std::size_t next(std::array<iovec, 64>& vectors) const {
    std::size_t used = 0;
    std::size_t skip = offset_;
    for (std::size_t i = at_; i < count_ && used < vectors.size(); ++i) {
      if (from_[i].iov_len > skip)
        vectors[used++] = {.iov_base = static_cast<char*>(from_[i].iov_base) + skip,
                           .iov_len = from_[i].iov_len - skip};
      skip = 0;
    }
    return used;
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
};

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

ssize_t receive(int fd, Connection& connection, const iovec* vectors, std::size_t count,
                int flags) {
  if ((flags & MSG_OOB) != 0 || (flags & MSG_ERRQUEUE) != 0) {
    // Urgent data goes its own way, through the kernel.
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(vectors);
    message.msg_iovlen = count;
    return real().recvmsg(fd, &message, flags);
  }
  const bool peek = (flags & MSG_PEEK) != 0;
  const bool discard = (flags & MSG_TRUNC) != 0;
  Rest rest(vectors, count);
  if (rest.bytes() == 0) return 0;
  ssize_t done = 0;
  std::array<iovec, 64> part;
  while (rest.bytes() != 0) {
    std::size_t got = connection.take(fd, part.data(), rest.next(part), peek, discard);
    if (got == 0) {
      const int state = connection.receive_state(fd);
      if (state != 0) {
        // The last bytes may have come between the two looks.
        got = connection.take(fd, part.data(), rest.next(part), peek, discard);
        if (got == 0) {
          if (done > 0 && state < 0) connection.own().error.store(-state);
          return done > 0 ? done : (state < 0 ? fail(-state) : 0);
        }
      }
    }
    if (got != 0) {
      done += static_cast<ssize_t>(got);
      rest.advance(got);
      if (peek || (flags & MSG_WAITALL) == 0) break;
      continue;
    }
    if ((flags & MSG_DONTWAIT) != 0) return done > 0 ? done : fail(EAGAIN);
    const int error = wait_for(fd, connection, Want::kData, 1);
    if (error != 0) return done > 0 ? done : fail(error);
  }
  return done;
}

ssize_t send(int fd, Connection& connection, const iovec* vectors, std::size_t count, int flags) {
  if ((flags & MSG_OOB) != 0) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(vectors);
    message.msg_iovlen = count;
    return real().sendmsg(fd, &message, flags);
  }
  Rest rest(vectors, count);
  const std::size_t wanted = rest.bytes();
  if (wanted > SSIZE_MAX) return fail(EINVAL);
  ssize_t done = 0;
  std::array<iovec, 64> part;
  do {
    const int state = connection.send_state(fd);
    if (state < 0) {
      if (done > 0) {
        connection.own().error.store(-state);
        return done;
      }
      return broken_pipe(-state, flags);
    }
    if (state > 0) return static_cast<ssize_t>(wanted);
    const std::size_t put = connection.put(fd, part.data(), rest.next(part));
    done += static_cast<ssize_t>(put);
    rest.advance(put);
    if (rest.bytes() == 0 || put != 0) continue;
    if ((flags & MSG_DONTWAIT) != 0) return done > 0 ? done : fail(EAGAIN);
    const int error = wait_for(fd, connection, Want::kRoom, rest.bytes());
    if (error != 0) return done > 0 ? done : fail(error);
  } while (rest.bytes() != 0);
  return done;
}

}  // namespace leat::preload
