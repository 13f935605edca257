// Implements select(2) by poll(2).
#pragma once

#include <poll.h>
#include <sys/select.h>

#include <cerrno>
#include <span>
#include <vector>

namespace leat::posix {

// The sets of one call: what poll(2) must ask for, and its answer in the caller's sets. Each of
// them may be null. For one thread.
class SelectSets {
 public:
  SelectSets(int count, fd_set* readable, fd_set* writable, fd_set* exceptional)
      : readable_(readable), writable_(writable), exceptional_(exceptional) {
    for (int fd = 0; fd < count; ++fd) {
      const int events = (has(readable, fd) ? kReadable.asked : 0) |
                         (has(writable, fd) ? kWritable.asked : 0) |
                         (has(exceptional, fd) ? kExceptional.asked : 0);
      if (events != 0) fds_.push_back({fd, static_cast<short>(events), 0});
    }
  }

  // As select(2), -errno where that fails. `poll`: as poll(2) of a span, -errno.
  template <typename Poll>
  long select(const Poll& poll) {
    for (;;) {
      const long found = poll(std::span<pollfd>(fds_));
      if (found < 0) return found;
      const long bits = count();
      if (bits == 0 && found > 0) continue;
      if (bits >= 0) answer();
      return bits;
    }
  }

 private:
  // How many bits select(2) would set after that poll(2); -EBADF. If 0 although poll(2) found
  // something, that was a hang-up, which select(2) does not report unless the caller waits to read:
  // the next poll leaves it out.
  long count() {
    long bits = 0;
    for (const pollfd& one : fds_) {
      if ((one.revents & POLLNVAL) != 0) return -EBADF;
      bits += ready(one, kReadable) + ready(one, kWritable) + ready(one, kExceptional);
    }
    if (bits != 0) return bits;
    for (pollfd& one : fds_)
      if (one.revents != 0) one.fd = -1 - one.fd;
    return 0;
  }

  // Leaves in the sets the bits that count() counted.
  void answer() const {
    for (const pollfd& one : fds_) {
      keep(readable_, one, kReadable);
      keep(writable_, one, kWritable);
      keep(exceptional_, one, kExceptional);
    }
  }

  // What the kernel asks for, and what it takes as an answer.
  struct Kind {
    int asked;
    int given;
  };
  static constexpr Kind kReadable = {POLLIN | POLLRDNORM,
                                     POLLIN | POLLRDNORM | POLLRDBAND | POLLHUP | POLLERR};
  static constexpr Kind kWritable = {POLLOUT | POLLWRNORM,
                                     POLLOUT | POLLWRNORM | POLLWRBAND | POLLERR};
  static constexpr Kind kExceptional = {POLLPRI, POLLPRI};

  static bool has(const fd_set* set, int fd) { return set != nullptr && FD_ISSET(fd, set); }
  static bool ready(const pollfd& one, const Kind& kind) {
    return (one.events & kind.asked) != 0 && (one.revents & kind.given) != 0;
  }
  static void keep(fd_set* set, const pollfd& one, const Kind& kind) {
    const int fd = one.fd >= 0 ? one.fd : -1 - one.fd;
    if (has(set, fd) && !ready(one, kind)) FD_CLR(fd, set);
  }

  fd_set* const readable_;
  fd_set* const writable_;
  fd_set* const exceptional_;
  std::vector<pollfd> fds_;
};

}  // namespace leat::posix
