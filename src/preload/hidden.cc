#include "preload/hidden.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "preload/descriptors.h"
#include "preload/real.h"

namespace leat::preload {
namespace {

// Hidden numbers begin here if the limit allows: high enough for select(2) to reach all that comes
// before, and low, because a fork copies the table of descriptors up to the highest. Not a round
// number, which a program may take for one that nobody has.
constexpr rlim_t kFirstHidden = 1024 + 7;
// A program with a lower limit would miss what is hidden, and is left with all of them.
constexpr rlim_t kFewestNumbers = 256;

// One for the meeting, one for the memory, one to move that out of the program's sight.
constexpr std::size_t kSpareNumbers = 3;
// What a process cannot do without: those, the place where a listener's offers arrive, and the
// state of its ends.
constexpr unsigned kEssential = kSpareNumbers + 2;

rlimit limits() noexcept {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

// While it lives the process may have as many descriptors as its hard limit allows. The program
// itself may set its limit meanwhile: then that is left as it is.
struct Raised {
  rlim_t from = 0;  // 0: not raised
  rlim_t to = 0;

  bool raise() noexcept {
    rlimit limit = limits();
    if (limit.rlim_cur >= limit.rlim_max) return false;
    from = std::exchange(limit.rlim_cur, limit.rlim_max);
    to = limit.rlim_cur;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return true;
    from = 0;
    return false;
  }

  void lower() noexcept {
    if (from == 0) return;
    const rlimit wanted{.rlim_cur = std::exchange(from, 0), .rlim_max = limits().rlim_max};
    rlimit found{};
    if (prlimit(0, RLIMIT_NOFILE, &wanted, &found) == 0 && found.rlim_cur != to)
      setrlimit(RLIMIT_NOFILE, &found);
  }
};

// Those below the program's limit, which it would have otherwise.
std::atomic<unsigned> hidden_from_program{0};

// A copy of `fd` at the lowest free number from `first` on.
long copy_from(int fd, rlim_t first) noexcept {
  return system_call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, static_cast<long>(first));
}

struct Spare {
  SignalSafeLock lock;
  int descriptors[kSpareNumbers] = {-1, -1, -1};
  unsigned users = 0;
  Raised raised;
};
constinit Spare spare;

// As hide(), while the caller holds the lock of the spare numbers, and with it the right to raise
// the limit.
int hide_locked(int fd) noexcept {
  const rlimit limit = limits();
  const rlim_t own = spare.raised.from != 0 ? spare.raised.from : limit.rlim_cur;
  long high = -1;
  if (own < kFirstHidden * 4) {
    // Beyond what the program may use, if its hard limit allows.
    Raised raised;
    if (spare.raised.from != 0 || raised.raise()) high = copy_from(fd, std::max(own, kFirstHidden));
    raised.lower();
    if (high < 0) high = copy_from(fd, own / 2 + 7);
  } else {
    high = copy_from(fd, kFirstHidden);
  }
  system_call(SYS_close, fd);
  if (high < 0) return -1;
  const int number = static_cast<int>(high);
  const Reference object = add(number, Kind::kOwn);
  const bool misses = static_cast<rlim_t>(number) < own;
  if (object) object->code = misses ? 1 : 0;
  // Relaxed: a count that only says how far to go.
  if (misses) hidden_from_program.fetch_add(1, std::memory_order_relaxed);
  return number;
}

bool fill_spare() {
  bool full = true;
  for (int& fd : spare.descriptors) {
    if (fd >= 0) continue;
    const long number = system_call(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    fd = number < 0 ? -1 : hide_locked(static_cast<int>(number));
    full &= fd >= 0;
  }
  return full;
}

// Closes that many of the memories of connections that take numbers from the program.
void give_up_memory(rlim_t count, rlim_t limit) noexcept {
  for (int fd = 0; count != 0 && fd <= highest_known(); ++fd) {
    const Reference object = find(fd);
    if (!object.is(Kind::kConnection)) continue;
    const int memfd = object->connection.memfd();
    if (memfd < 0 || static_cast<rlim_t>(memfd) >= limit) continue;
    close_hidden(object->connection.give_up_memfd());
    --count;
  }
}

}  // namespace

int hide(int fd) noexcept {
  const Locked locked(spare.lock);
  return hide_locked(fd);
}

void close_hidden(int fd) noexcept {
  const Reference object = find(fd);
  if (!object.is(Kind::kOwn)) return;
  const bool ours = is_current(fd, *object);
  forget(fd);
  if (object->code != 0) hidden_from_program.fetch_sub(1, std::memory_order_relaxed);
  if (ours) system_call(SYS_close, fd);
}

bool is_hidden(int fd) noexcept {
  const Reference object = find(fd);
  if (!object.is(Kind::kOwn)) return false;
  if (is_current(fd, *object)) return true;
  forget(fd);
  return false;
}

bool number_is_free(int fd) noexcept {
  const long copy = copy_from(fd, 0);
  if (copy < 0) return errno != EMFILE;
  system_call(SYS_close, copy);
  return true;
}

bool keep_spare_numbers() noexcept {
  {
    // Of every connection that is accepted, most find them there.
    const Locked locked(spare.lock);
    if (std::ranges::all_of(spare.descriptors, [](int fd) { return fd >= 0; })) return true;
  }
  const rlimit limit = limits();
  if (limit.rlim_cur < limit.rlim_max) return true;
  {
    const Locked locked(spare.lock);
    if (spare.users != 0 || fill_spare()) return true;
  }
  give_up_memory(2 * kSpareNumbers, limit.rlim_cur);
  const Locked locked(spare.lock);
  return fill_spare();
}

SpareNumbers::SpareNumbers() noexcept {
  const Locked locked(spare.lock);
  if (spare.users++ != 0 || spare.raised.raise()) return;
  for (int& fd : spare.descriptors) {
    if (fd >= 0) close_hidden(std::exchange(fd, -1));
  }
}

SpareNumbers::~SpareNumbers() {
  const Locked locked(spare.lock);
  // None: this is the child of a fork by a handler that came meanwhile.
  if (spare.users == 0 || --spare.users != 0) return;
  if (spare.raised.from == 0) {
    fill_spare();
    return;
  }
  spare.raised.lower();
}

bool too_few_numbers() noexcept { return limits().rlim_cur < kFewestNumbers; }

void make_room_after(int newest) noexcept {
  const unsigned hidden = hidden_from_program.load(std::memory_order_relaxed);
  if (hidden <= kEssential) return;
  // Nothing is hidden below a limit lower than kFewestNumbers, so the kernel is asked only where
  // its answer can matter.
  const auto wanted_of = [&](rlim_t limit) {
    return static_cast<rlim_t>(newest) + hidden + limit / 8;
  };
  if (wanted_of(kFewestNumbers) <= kFewestNumbers) return;
  const rlim_t limit = limits().rlim_cur;
  const rlim_t wanted = wanted_of(limit);
  if (wanted > limit) give_up_memory(wanted - limit, limit);
}

SignalSafeLock& lock_of_spare_numbers() noexcept { return spare.lock; }

void end_use_of_spare_numbers() noexcept {
  // Else the lock's owner was interrupted by the handler that forks, and goes on in the child.
  if (!spare.lock.held_for_fork()) return;
  spare.users = 0;
  spare.raised.lower();
}

}  // namespace leat::preload
