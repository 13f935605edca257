#include "preload/waiting.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <optional>

#include "preload/configuration.h"
#include "preload/listening.h"
#include "preload/real.h"

namespace leat::preload {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr unsigned kRoundsPerLookAtClock = 32;
constexpr unsigned kRoundsPerLookAtSignals = 8 * kRoundsPerLookAtClock;
constexpr auto kLeastSpin = std::chrono::microseconds(2);
// Who is not the one that listens to the bell looks for itself so often, should that one be killed.
constexpr auto kNap = std::chrono::milliseconds(10);

// Who is woken may find itself on the core of one that spins, and must not wait until the kernel
// ends that. A pause longer than kCoreWasTaken, as when the offer was taken, means that the core is
// needed for something else. Then sleeping at once is better for a while: who sleeps is woken
// before others.
constexpr auto kOffersCore = std::chrono::microseconds(5);
constexpr auto kCoreWasTaken = std::chrono::microseconds(15);
// One that comes earlier might as well have come before the call.
constexpr auto kWatchSignals = std::chrono::microseconds(50);
constexpr auto kLeaveCore = std::chrono::milliseconds(5);

thread_local nanoseconds spin_limit{-1};
thread_local Clock::time_point spin_again_at{};

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

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
  // Our own shutdown, after which the kernel sleeps no more, or the end.
  if (got == 0 && !connection.bell_rings()) return 0;
  connection.peer_gone(got < 0 ? errno : 0);
  return 0;
}

int sleep_in_poll(int fd, Connection& connection, Clock::time_point deadline) {
  const bool ends = deadline != Clock::time_point::max();
  const auto left =
      ends ? std::max(nanoseconds(0), nanoseconds(deadline - Clock::now())) : nanoseconds(1);
  if (left == nanoseconds(0)) return EAGAIN;
  const timespec time{.tv_sec = left.count() / 1'000'000'000,
                      .tv_nsec = left.count() % 1'000'000'000};
  pollfd wait{.fd = fd, .events = POLLIN};
  const int woken = real().ppoll(&wait, 1, ends ? &time : nullptr, nullptr);
  if (woken < 0) return errno;
  if (woken == 0) return EAGAIN;
  connection.look_at_kernel(fd, true);
  return 0;
}

}  // namespace

Spin::Spin() noexcept {
  const nanoseconds most = spin_time();
  if (spin_limit < nanoseconds(0)) spin_limit = most;
  limit_ = spin_limit;
  if (limit_ == nanoseconds(0)) return;
  start_ = looked_ = offered_ = Clock::now();
  if (start_ < spin_again_at) limit_ = nanoseconds(0);
}

bool Spin::again() noexcept {
  if (limit_ == nanoseconds(0)) return false;
  ++rounds_;
  further_ = false;
  pause();
  if (rounds_ % kRoundsPerLookAtClock != 0) return true;
  auto now = Clock::now();
  if (now - offered_ >= kOffersCore) {
    sched_yield();
    offered_ = now = Clock::now();
    further_ = true;
  }
  const bool taken = now - looked_ > kCoreWasTaken && spin_time() < std::chrono::seconds(1);
  looked_ = now;
  if (taken) {
    spin_again_at = now + kLeaveCore;
    return false;
  }
  if (now - start_ < limit_) {
    if (now - start_ < kWatchSignals) return true;
    if (!watch_) watch_.emplace();
    signal_ = rounds_ % kRoundsPerLookAtSignals == 0 ? watch_->look() : signal_;
    if (signal_ == SignalWatch::Came::kNothing) return true;
  }
  spin_limit = std::max(limit_ / 2, std::min<nanoseconds>(kLeastSpin, spin_time()));
  return false;
}

SignalWatch::Came Spin::signal() noexcept {
  watch_.reset();
  return signal_;
}

void Spin::found() noexcept {
  const nanoseconds most = spin_time();
  spin_limit = limit_ >= most / 4 ? most : limit_ * 4;
}

Clock::time_point socket_deadline(int fd, int option, Clock::time_point start) noexcept {
  timeval time{};
  socklen_t bytes = sizeof(time);
  if (real().getsockopt(fd, SOL_SOCKET, option, &time, &bytes) != 0 ||
      (time.tv_sec == 0 && time.tv_usec == 0))
    return Clock::time_point::max();
  return start + std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
}

bool Patience::begin() noexcept {
  if (start_) return false;
  start_ = Clock::now();
  return true;
}

Clock::time_point Patience::end() noexcept {
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
  if (is_nonblocking(fd)) return EAGAIN;
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
  // Who sleeps in the kernel's recv() need not know its timeout.
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
