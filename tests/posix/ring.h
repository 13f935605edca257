// A submission ring of the kernel, as small as a program needs one for a call at a time.
#pragma once

#include <linux/io_uring.h>
#include <sys/epoll.h>

#include <cstddef>

namespace posix_cases {

// For one thread. Not there where the kernel, or what stands before it, refuses one: then the
// program makes the calls itself, as libuv does.
class Ring {
 public:
  // How the ring is made and entered: system_call(number, ...) as syscall() has it.
  using SystemCall = long (*)(long number, long first, long second, long third, long fourth,
                              long fifth, long sixth);

  explicit Ring(SystemCall system_call);
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring();

  // -1 and errno as the call has them that the operation stands for.
  int control(int set, int operation, int fd, epoll_event* event);
  long send(int fd, const void* data, std::size_t bytes);
  long recv(int fd, void* data, std::size_t bytes);

 private:
  // The operation's result, with errno; false in `done` if the kernel does not know it.
  long submit(const io_uring_sqe& operation, bool& done);
  void* map(std::size_t bytes, unsigned long offset);

  SystemCall system_call_;
  io_uring_params parameters_{};
  int fd_;  // after the parameters, which the kernel fills in with it
  unsigned char* submissions_ = nullptr;
  unsigned char* completions_ = nullptr;
  io_uring_sqe* entries_ = nullptr;
};

}  // namespace posix_cases
