#include "preload/waiting.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
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

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  const timespec nap{.tv_sec = 0, .tv_nsec = nanoseconds(kNap).count()};
  // Not FUTEX_PRIVATE: processes of this end may share it.
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &nap, nullptr, 0);
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
  // The end, or our own shutdown, after which the kernel sleeps no more.
  if (got == 0 && !connection.bell_rings()) {
    connection.look_at_kernel(fd, true);
    return usleep(500) != 0 && errno == EINTR ? EINTR : 0;
  }
  connection.peer_gone();
  return 0;
}

int sleep_in_poll(int fd, Connection& connection, Clock::time_point deadline) {
  const auto left = std::max(nanoseconds(0), nanoseconds(deadline - Clock::now()));
  if (left == nanoseconds(0)) return EAGAIN;
  const timespec time{.tv_sec = left.count() / 1'000'000'000,
                      .tv_nsec = left.count() % 1'000'000'000};
  pollfd wait{.fd = fd, .events = POLLIN};
  const int woken = real().ppoll(&wait, 1, &time, nullptr);
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

Clock::time_point socket_deadline(int fd, int option) noexcept {
  timeval time{};
  socklen_t bytes = sizeof(time);
  if (real().getsockopt(fd, SOL_SOCKET, option, &time, &bytes) != 0 ||
      (time.tv_sec == 0 && time.tv_usec == 0))
    return Clock::time_point::max();
  return Clock::now() + std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
}

bool is_nonblocking(int fd) noexcept {
  const int flags = real().fcntl(fd, F_GETFL, nullptr);
  return flags >= 0 && (flags & O_NONBLOCK) != 0;
}

int wait_for(int fd, Connection& connection, Want want, std::size_t bytes) {
  if (is_nonblocking(fd)) return EAGAIN;
  Spin spin;
  while (spin.again()) {
    if (ready(connection, want, bytes)) {
      spin.found();
      return 0;
    }
    if (connection.peer().note.load(std::memory_order_relaxed) != kNotClosed) break;
  }
  const SignalWatch::Came came = spin.signal();
  Side& own = connection.own();
  own.sleeps.store(own.sleeps.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  std::optional<Counted> sending;
  if (want == Want::kRoom) sending.emplace(own.senders_asleep);
  // Who sleeps in the kernel's recv() need not know its timeout.
  std::optional<Clock::time_point> known;
  const auto deadline = [&] {
    if (!known) known = socket_deadline(fd, want == Want::kData ? SO_RCVTIMEO : SO_SNDTIMEO);
    return *known;
  };
  if (came == SignalWatch::Came::kInterrupts ||
      (came == SignalWatch::Came::kRestarts && deadline() != Clock::time_point::max()))
    return EINTR;
  for (;;) {
    const Listening listening(&own);
    const std::uint32_t turn = own.turn.load(std::memory_order_seq_cst);
    const Counted counted(own.others);
    const Asleep asleep(connection, want == Want::kData ? POLLIN : POLLOUT);
    if (ready(connection, want, bytes)) return 0;
    if (listening.ours()) {
      if (want == Want::kRoom && deadline() != Clock::time_point::max())
        return sleep_in_poll(fd, connection, deadline());
      return sleep_in_receive(fd, connection, want);
    }
    deadline();  // counts from now
    futex_wait(own.turn, turn);
    if (ready(connection, want, bytes)) return 0;
    if (Clock::now() >= deadline()) return EAGAIN;
  }
}

}  // namespace leat::preload
