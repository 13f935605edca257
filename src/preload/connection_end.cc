// How a connection ends, as TCP's states have it.
#include <poll.h>
#include <sys/syscall.h>

#include <cerrno>
#include <ctime>

#include "posix/times.h"
#include "preload/connection.h"
#include "preload/real.h"
#include "preload/socket_facts.h"

namespace leat::preload {
namespace {

// Longer than from a note to the kernel's close, on most occasions.
constexpr std::int64_t kClosing = 2'000'000;  // ns

// How often a caller that only asks has the kernel asked whether the peer still lives.
constexpr std::int64_t kAskInterval = 20'000;  // ns

// What the kernel reports, an end or bytes: the cheapest query that consumes nothing.
short ask_kernel(int fd) {
  pollfd end{.fd = fd, .events = POLLIN | POLLRDHUP, .revents = 0};
  const timespec at_once{};
  const int kept_errno = errno;
  // Not libc's: no cancellation point.
  system_call(SYS_ppoll, &end, 1, &at_once, nullptr, 0);
  errno = kept_errno;
  return end.revents;
}

}  // namespace

bool Connection::is_loss(int error) noexcept {
  return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
         error == ECONNABORTED;
}

void Connection::peer_gone(int error) noexcept {
  if (flag(kPeerGone)) return;
  std::uint32_t note = peer().note.load(std::memory_order_acquire);
  // The process that left it closed its descriptor, and another one ended the connection later.
  if (note != kClosedInUse && note != kSentInVain && is_note_old()) note = kNotClosed;
  const bool lost = is_loss(error);
  const bool abort = peer().aborts.load(std::memory_order_relaxed) != 0;
  // A call that the close overtook may still take what is there.
  const bool unread = (unread_by_peer() != 0 && note != kClosedInUse) || note == kClosedUrgent;
  // Only the kernel knows a connection that was never accepted; it ended with its listener.
  const bool refused = error == ECONNRESET && peer().cookie.load(std::memory_order_relaxed) == 0;
  const bool reset = lost || abort || unread || refused || note == kSentInVain;
  // If the peer closed with nothing unread, what it has not read was sent after its close.
  const bool in_order = !reset || (note == kClosedInOrder && !lost && !abort);
  own().tcp.peer_gone(in_order || peer_has_ended(), reset ? (lost ? error : ECONNRESET) : 0);
}

bool Connection::is_note_old() const noexcept {
  const std::int64_t since = noted_.load(std::memory_order_relaxed);
  return since != 0 && posix::now_ns(CLOCK_MONOTONIC) - since >= kClosing;
}

// A process closed its descriptor, but another still has one. Or the kernel's close is still to
// come, and will need what the note says.
void Connection::outdate_note(std::uint32_t note) noexcept {
  if (note == kClosedInUse) return;
  const std::int64_t since = noted_.load(std::memory_order_relaxed);
  if (note == kNotClosed) {
    if (since != 0) noted_.store(0, std::memory_order_relaxed);
    return;
  }
  if (since == 0) noted_.store(posix::now_ns(CLOCK_MONOTONIC), std::memory_order_relaxed);
  if (!is_note_old()) return;
  noted_.store(0, std::memory_order_relaxed);
  // Relaxed: another note that came meanwhile stays, and nothing else goes by this.
  peer().note.compare_exchange_strong(note, kNotClosed, std::memory_order_relaxed);
}

void Connection::note_closing(int fd, bool in_use) const noexcept {
  if (shown().note.load(std::memory_order_relaxed) == kSentInVain) return;
  CloseNote note = in_use ? kClosedInUse : kClosedInOrder;
  if (readable_bytes() != 0) {
    note = kClosedUnread;
  } else if (has_urgent(fd)) {
    note = kClosedUrgent;
  }
  shown().note.store(note, std::memory_order_release);
}

void Connection::note_closed() const noexcept {
  std::uint32_t note = kClosedInUse;
  if (readable_bytes() != 0)
    shown().note.compare_exchange_strong(note, kClosedUnread, std::memory_order_release,
                                         std::memory_order_relaxed);
}

bool Connection::is_found_gone(int fd) noexcept {
  if (flag(kPeerGone)) return false;
  const std::int64_t now = posix::now_ns(CLOCK_MONOTONIC);
  if (now - asked_.load(std::memory_order_relaxed) < kAskInterval) return false;
  asked_.store(now, std::memory_order_relaxed);
  look_for_end(fd);
  return flag(kPeerGone);
}

bool Connection::is_to_be_asked() noexcept {
  if (flag(kPeerGone)) return false;
  if (peer().note.load(std::memory_order_acquire) != kNotClosed) return true;
  // The coarse clock costs next to nothing.
  if (asked_.load(std::memory_order_relaxed) >= posix::now_ns(CLOCK_MONOTONIC_COARSE)) return false;
  asked_.store(posix::now_ns(CLOCK_MONOTONIC), std::memory_order_relaxed);
  return true;
}

// Only the kernel knows that a peer was killed, or closed out of leat's sight.
void Connection::look_for_end(int fd) noexcept {
  if (flag(kPeerGone)) return;
  const bool noted = peer().note.load(std::memory_order_acquire) != kNotClosed;
  const short heard = noted ? short{0} : ask_kernel(fd);
  if (!noted && (heard & ~POLLIN) == 0) {
    if (heard == 0) return;
    // As a rule rings that came too late. Once in a tick of the coarse clock.
    const std::int64_t now = posix::now_ns(CLOCK_MONOTONIC_COARSE);
    if (looked_at_rings_.exchange(now, std::memory_order_relaxed) != now) look_at_rings(fd);
    return;
  }
  look_at_kernel(fd);
  if (!noted && !flag(kPeerGone)) look_at_kernel(fd);  // rings came before the end
}

int Connection::take_error(int fd) noexcept {
  look_for_end(fd);
  return own().tcp.take_error();
}

int Connection::take_known_error(int fd) noexcept {
  if (is_to_be_asked()) look_for_end(fd);
  return own().tcp.take_error();
}

int Connection::tcp_state(int fd) noexcept {
  look_for_end(fd);
  return own().tcp.tcp_state(peer_has_ended());
}

}  // namespace leat::preload
