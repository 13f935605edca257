// syscall(2): programs and libraries that close, read or wait by number (libuv does) get the same
// functions as those that call them by name. Only where these know something of the descriptor;
// else the kernel gets what the program gave.
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/ioctl.h>

#include <array>

#include "preload/call.h"
#include "preload/undisturbed.h"

namespace leat::preload {
namespace {

// What a program gave to syscall(2), each as the type that the call means.
class Arguments {
 public:
  explicit Arguments(va_list& list) noexcept {
    for (long& one : words_) one = va_arg(list, long);
  }

  template <typename T>
  T get(std::size_t index) const noexcept {
    if constexpr (std::is_pointer_v<T>) {
      return reinterpret_cast<T>(words_[index]);  // NOLINT(performance-no-int-to-ptr)
    } else {
      return static_cast<T>(words_[index]);
    }
  }
  int fd(std::size_t index = 0) const noexcept { return get<int>(index); }

  // Calls the function of that name with as many of them as it takes.
  template <typename Result, typename... Parameters>
  long call(Result (*function)(Parameters...)) const {
    return call_with(function, std::index_sequence_for<Parameters...>());
  }
  template <typename Result, typename... Parameters>
  long call(Result (*function)(Parameters...) noexcept) const {
    return call_with(static_cast<Result (*)(Parameters...)>(function),
                     std::index_sequence_for<Parameters...>());
  }
  long kernel(long number) const noexcept {
    return real().syscall(number, words_[0], words_[1], words_[2], words_[3], words_[4], words_[5]);
  }

 private:
  template <typename Result, typename... Parameters, std::size_t... kIndex>
  long call_with(Result (*function)(Parameters...), std::index_sequence<kIndex...>) const {
    return static_cast<long>(function(get<Parameters>(kIndex)...));
  }

  std::array<long, 6> words_;
};

bool is_known(int fd) noexcept {
  return fd >= 0 && fd < kMostDescriptors &&
         descriptor_entry(fd).load(std::memory_order_relaxed) != nullptr;
}

bool any_known(const pollfd* fds, nfds_t count) noexcept {
  for (nfds_t i = 0; fds != nullptr && highest_known() >= 0 && i < count; ++i)
    if (is_known(fds[i].fd)) return true;
  return false;
}

// The kernel's sixth argument of pselect6.
struct MaskAndSize {
  const sigset_t* mask;
  std::size_t bytes;
};

long call_pselect(const Arguments& given) {
  const auto* mask = given.get<const MaskAndSize*>(5);
  auto* timeout = given.get<timespec*>(4);
  return pselect(given.get<int>(0), given.get<fd_set*>(1), given.get<fd_set*>(2),
                 given.get<fd_set*>(3), timeout, mask != nullptr ? mask->mask : nullptr);
}

// A copy of this process, whose stack it continues on; a thread, or what has a stack of its own,
// cannot come back from this function.
long call_clone(long number, const Arguments& given) {
  constexpr long kOther = CLONE_VM | CLONE_THREAD;
  if ((given.get<long>(0) & kOther) != 0 || given.get<long>(1) != 0) return given.kernel(number);
  before_fork();
  const long child = given.kernel(number);
  child == 0 ? after_fork_in_child() : after_fork_in_parent();
  return child;
}

// Calls of two descriptors, of which we may know one.
bool either_known(const Arguments& given, std::size_t first, std::size_t second) noexcept {
  return is_known(given.fd(first)) || is_known(given.fd(second));
}

// Those that act on what their first descriptor stands for.
long of_descriptor(long number, const Arguments& given) {
  switch (number) {
    case SYS_read:
      return given.call(read);
    case SYS_write:
      return given.call(write);
    case SYS_readv:
      return given.call(readv);
    case SYS_writev:
      return given.call(writev);
    case SYS_preadv2:
      return preadv64v2(given.fd(), given.get<const iovec*>(1), given.get<int>(2),
                        given.get<off64_t>(3), given.get<int>(5));
    case SYS_pwritev2:
      return pwritev64v2(given.fd(), given.get<const iovec*>(1), given.get<int>(2),
                         given.get<off64_t>(3), given.get<int>(5));
    case SYS_recvfrom:
      return recvfrom(given.fd(), given.get<void*>(1), given.get<std::size_t>(2), given.get<int>(3),
                      given.get<sockaddr*>(4), given.get<socklen_t*>(5));
    case SYS_recvmsg:
      return given.call(recvmsg);
    case SYS_recvmmsg:
      return given.call(recvmmsg);
    case SYS_sendto:
      return sendto(given.fd(), given.get<const void*>(1), given.get<std::size_t>(2),
                    given.get<int>(3), given.get<const sockaddr*>(4), given.get<socklen_t>(5));
    case SYS_sendmsg:
      return given.call(sendmsg);
    case SYS_sendmmsg:
      return given.call(sendmmsg);
    case SYS_accept4:
      return accept4(given.fd(), given.get<sockaddr*>(1), given.get<socklen_t*>(2),
                     given.get<int>(3));
    case SYS_accept:
      return accept(given.fd(), given.get<sockaddr*>(1), given.get<socklen_t*>(2));
    case SYS_shutdown:
      return given.call(shutdown);
    case SYS_getpeername:
      return getpeername(given.fd(), given.get<sockaddr*>(1), given.get<socklen_t*>(2));
    case SYS_getsockopt:
      return given.call(getsockopt);
    case SYS_setsockopt:
      return given.call(setsockopt);
    case SYS_close:
      return given.call(close);
    case SYS_dup:
      return given.call(dup);
    case SYS_fcntl:
      return fcntl64(given.fd(), given.get<int>(1), given.get<void*>(2));
    case SYS_ioctl:
      return ioctl(given.fd(), given.get<unsigned long>(1), given.get<void*>(2));
    case SYS_epoll_ctl:
      return given.call(epoll_ctl);
    case SYS_epoll_pwait:
      return epoll_pwait(given.fd(), given.get<epoll_event*>(1), given.get<int>(2),
                         given.get<int>(3), given.get<const sigset_t*>(4));
    case SYS_epoll_pwait2:
      return epoll_pwait2(given.fd(), given.get<epoll_event*>(1), given.get<int>(2),
                          given.get<const timespec*>(3), given.get<const sigset_t*>(4));
#ifdef SYS_epoll_wait
    case SYS_epoll_wait:
      return given.call(epoll_wait);
#endif
    default:
      return given.kernel(number);
  }
}

long call_by_number(long number, const Arguments& given) {
  switch (number) {
    // Those that may make something known.
    case SYS_listen:
      return given.call(listen);
    case SYS_connect:
      return connect(given.fd(), given.get<const sockaddr*>(1), given.get<socklen_t>(2));
    case SYS_socket:
      return given.call(socket);
    case SYS_epoll_create1:
      return given.call(epoll_create1);
    case SYS_execve:
      return given.call(execve);
    case SYS_execveat:
      return given.call(execveat);
    case SYS_clone:
      return call_clone(number, given);
    case SYS_close_range:
      return given.call(close_range);
    case SYS_dup3:
      return either_known(given, 0, 1) ? given.call(dup3) : given.kernel(number);
    case SYS_sendfile:
      return is_known(given.fd()) ? given.call(sendfile64) : given.kernel(number);
    case SYS_splice:
      return either_known(given, 0, 2) ? given.call(splice) : given.kernel(number);
    case SYS_ppoll:
      return any_known(given.get<const pollfd*>(0), given.get<nfds_t>(1)) ? given.call(ppoll)
                                                                          : given.kernel(number);
    case SYS_pselect6:
      return highest_known() >= 0 ? call_pselect(given) : given.kernel(number);
    case SYS_io_uring_setup:
      // A ring would act on descriptors past this library. Programs that use one can do without:
      // older kernels have none, and containers forbid it.
      errno = ENOSYS;
      return -1;
#ifdef SYS_epoll_create
    case SYS_epoll_create:
      return given.call(epoll_create);
#endif
#ifdef SYS_dup2
    case SYS_dup2:
      return either_known(given, 0, 1) ? given.call(dup2) : given.kernel(number);
#endif
#ifdef SYS_poll
    case SYS_poll:
      return any_known(given.get<const pollfd*>(0), given.get<nfds_t>(1)) ? given.call(poll)
                                                                          : given.kernel(number);
#endif
#ifdef SYS_select
    case SYS_select:
      return highest_known() >= 0 ? given.call(select) : given.kernel(number);
#endif
#ifdef SYS_fork
    case SYS_fork:
      return given.call(_Fork);
    case SYS_vfork:
      return given.call(vfork);
#endif
    default:
      return is_known(given.fd()) ? of_descriptor(number, given) : given.kernel(number);
  }
}

}  // namespace
}  // namespace leat::preload

using namespace leat::preload;  // NOLINT: the function below is C's

// The C library's headers call the parameter otherwise.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
LEAT_CALL long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  const Arguments given(list);
  va_end(list);
  const Uncancelled uncancelled;  // as the kernel's own
  return call_by_number(number, given);
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
