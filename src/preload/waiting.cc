#include "preload/waiting.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "preload/configuration.h"
#include "preload/listening.h"
#include "preload/real.h"

namespace leat::preload {
namespace {

using posix::Clock;
using posix::Deadline;
using posix::kNoDeadline;
using std::chrono::nanoseconds;

// Between two looks at what takes a system call.
constexpr auto kLookFurther = std::chrono::microseconds(5);
// A signal that comes earlier might as well have come before the call.
constexpr auto kWatchSignals = std::chrono::microseconds(50);
constexpr auto kLookAtSignals = std::chrono::microseconds(10);

constinit thread_local detail::SpinBudget learnt;

bool ready(Connection& connection, Want want, std::size_t bytes) {
  if (want == Want::kData)
    return connection.readable_bytes() >= bytes || (connection.poll_mask() & POLLRDHUP) != 0;
  return connection.room(bytes) || (connection.poll_mask() & POLLOUT) != 0;
}

// A sleep that is not the kernel's recv(): `sleep` with signals held back, so that it can be told
// what came. A cancellation point.
template <typename Sleep>
SignalWatch::Came nap(const Sleep& sleep) {
  auto came = SignalWatch::Came::kNothing;
  {
    const SignalWatch watch;
    sleep();
    came = watch.look();
  }
  pthread_testcancel();
  return came;
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  const timespec time{.tv_sec = 0, .tv_nsec = nanoseconds(kNap).count()};
  // Not FUTEX_PRIVATE: processes of this end may share it.
  system_call(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

bool interrupts(SignalWatch::Came came, bool restarts) {
  return came == SignalWatch::Came::kInterrupts ||
         (came == SignalWatch::Came::kRestarts && !restarts);
}

// Sleeps in the kernel's recv() itself, which takes the ring of the bell at the same time, and
// brings with it how signals, SA_RESTART, SO_RCVTIMEO, O_NONBLOCK and cancellation work.
int sleep_in_receive(int fd, Connection& connection, Want want) {
  char rings[64];
  const ssize_t got = real().recv(fd, rings, sizeof(rings), 0);
  if (got > 0) {
    connection.check_rings(rings, static_cast<std::size_t>(got));
    return 0;
  }
  if (got < 0 && errno == EINTR) return EINTR;
  if (got < 0 && errno == EAGAIN) return want == Want::kData ? EAGAIN : 0;
  if (got < 0 && errno == EBADF) return EBADF;
  // As newer kernels tell a sleeper while another thread connects the socket to no address.
  const std::uint32_t flags = connection.own().tcp.flags.load(std::memory_order_acquire);
  if (got < 0 && errno == EPIPE && (flags & kDissolved) != 0) return EPIPE;
  // Our own shutdown, after which the kernel sleeps no more, or the end.
  if (got == 0 && !connection.bell_rings()) return 0;
  connection.peer_gone(got < 0 ? errno : 0);
  return 0;
}

int sleep_in_poll(int fd, Connection& connection, Deadline deadline) {
  const timespec left = posix::time_left(deadline);
  if (posix::is_zero(&left)) return EAGAIN;
  pollfd wait{.fd = fd, .events = POLLIN};
  const int woken = real().ppoll(&wait, 1, deadline != kNoDeadline ? &left : nullptr, nullptr);
  if (woken < 0) return errno;
  if (woken == 0) return EAGAIN;
  connection.look_at_kernel(fd, true);
  return 0;
}

}  // namespace

Spin::Spin() noexcept
    : spin_(learnt, spin_time()), next_further_(kLookFurther), next_watch_(kWatchSignals) {}

bool Spin::again() noexcept {
  further_ = false;
  if (!spin_.again()) return false;
  if (!spin_.looked()) [[likely]]
    return true;
  const nanoseconds took = spin_.took();
  if (took >= next_further_) {
    further_ = true;
    next_further_ = took + kLookFurther;
  }
  if (took < next_watch_) return true;
  next_watch_ = took + kLookAtSignals;
  if (!watch_) watch_.emplace();
  signal_ = watch_->look();
  return signal_ == SignalWatch::Came::kNothing;
}

SignalWatch::Came Spin::signal() noexcept {
  watch_.reset();
  return signal_;
}

Deadline socket_deadline(int fd, int option, Deadline start) noexcept {
  timeval time{};
  socklen_t bytes = sizeof(time);
  if (real().getsockopt(fd, SOL_SOCKET, option, &time, &bytes) != 0) return kNoDeadline;
  const timespec whole = posix::to_timespec(time);
  return posix::is_zero(&whole) ? kNoDeadline : posix::deadline_of(&whole, start);
}

bool Patience::begin() noexcept {
  if (start_) return false;
  start_ = Clock::now();
  return true;
}

Deadline Patience::end() noexcept {
  if (!end_)
    end_ = socket_deadline(fd_, want_ == Want::kData ? SO_RCVTIMEO : SO_SNDTIMEO,
                           start_ ? *start_ : Clock::now());
  return *end_;
}

bool is_nonblocking(int fd) noexcept {
  const int flags = real().fcntl(fd, F_GETFL, nullptr);
  return flags >= 0 && (flags & O_NONBLOCK) != 0;
}

int wait_for(int fd, Connection& connection, Patience& patience, std::size_t bytes, bool some) {
  const bool first = patience.begin();
  const Want want = patience.want();
  Spin spin;
  while (spin.again()) {
    if (ready(connection, want, bytes)) {
      spin.found();
      return 0;
    }
    if (connection.peer().note.load(std::memory_order_relaxed) != kNotClosed) break;
    if (spin.look_further() && spin.is_long() && Clock::now() >= patience.end()) break;
  }
  bool kernel_times = first && want == Want::kData && !spin.is_long();
  const SignalWatch::Came came = spin.signal();
  EndState& own = connection.own();
  auto& sleeps = connection.shown().sleeps;
  sleeps.store(sleeps.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  std::optional<Counted> sending;
  if (want == Want::kRoom) sending.emplace(own.senders_asleep);
  // A sleeper in the kernel's recv() need not know its timeout.
  if (came != SignalWatch::Came::kNothing && interrupts(came, !some && !patience.ends()))
    return EINTR;
  for (;;) {
    const Listening listening(&own);
    const Counted counted(own.others);
    const Asleep asleep(connection, want == Want::kData ? POLLIN : POLLOUT);
    if (ready(connection, want, bytes)) return 0;
    fd = connection.alive(fd);
    if (fd < 0) return EBADF;
    if (listening.ours() && !connection.bell_rings()) {
      connection.look_at_kernel(fd, true);
      if (interrupts(nap([] { usleep(500); }), !some && !patience.ends())) return EINTR;
      return Clock::now() >= patience.end() ? EAGAIN : 0;
    }
    if (listening.ours()) {
      // Which ends for every signal, and at that time.
      if (some || (!kernel_times && patience.ends()))
        return sleep_in_poll(fd, connection, patience.end());
      return sleep_in_receive(fd, connection, want);
    }
    kernel_times = false;
    const bool restarts = !some && !patience.ends();
    if (interrupts(nap([&] { futex_wait(own.turn, listening.turn()); }), restarts)) return EINTR;
    if (ready(connection, want, bytes)) return 0;
    if (Clock::now() >= patience.end()) return EAGAIN;
  }
}

}  // namespace leat::preload
