// Remembers the descriptors in a set of epoll that leat does not know otherwise and that the kernel
// reports only once (EPOLLET, EPOLLONESHOT), so that leat can have them reported again.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace leat::preload {

// A few, without memory of its own: a signal handler may add some. For one thread at a time.
class EpollOnce {
 public:
  // Replaces what is known of the number. False: there is no room.
  bool note(int fd, const epoll_event& event) noexcept {
    forget(fd);
    if (count_ == known_.size()) return false;
    known_[count_++] = {fd, event};
    return true;
  }
  // The number means something else in the set, or nothing.
  void forget(int fd) noexcept {
    for (std::size_t i = count_; i-- > 0;) {
      if (known_[i].fd == fd) known_[i] = known_[--count_];
    }
  }
  // Calls `arm(fd, event)` for each descriptor that is reported under these data. Returns whether
  // one succeeded. One that fails, as its number is closed while a copy is open, is forgotten and
  // counted in `lost`.
  template <typename Arm>
  bool told(epoll_data_t data, const Arm& arm, std::uint32_t& lost) {
    bool any = false;
    for (std::size_t i = count_; i-- > 0;) {
      Known one = known_[i];
      if (one.event.data.u64 != data.u64) continue;
      if (arm(one.fd, one.event)) {
        any = true;
      } else {
        known_[i] = known_[--count_];
        ++lost;
      }
    }
    return any;
  }

 private:
  struct Known {
    int fd;
    epoll_event event;
  };
  std::array<Known, 8> known_{};
  std::size_t count_ = 0;
};

}  // namespace leat::preload
