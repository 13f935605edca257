#include "preload/connection.h"

#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "preload/configuration.h"
#include "preload/descriptors.h"
#include "preload/listening.h"
#include "preload/real.h"
#include "preload/signal_safe_lock.h"
#include "preload/socket_facts.h"
#include "preload/undisturbed.h"

namespace leat::preload {
namespace {

constexpr std::uint64_t kMask = kRingBytes - 1;
// A sleeping sender is woken, and POLLOUT said, from this part of the room on: as TCP, not for each
// byte.
constexpr std::size_t kRoomPart = 4;
constexpr unsigned kDataBell = 1;
constexpr unsigned kRoomBell = 2;

constexpr char kImpossible[] = "wrote impossible positions";
constexpr char kStrange[] =
    "wrote past leat-run, to the kernel's socket, where bytes are lost (docs/sockets.md says what "
    "cannot be carried)";

// Whether a sleeper has not been notified yet.
bool awaited(const std::atomic<std::uint32_t>& bell) {
  const std::uint32_t word = bell.load(std::memory_order_relaxed);
  return word >= kSleeper && (word & kRung) == 0;
}

void add(std::atomic<std::uint64_t>& counter, std::uint64_t value) {
  // A count for people: no order, and an update lost between two threads does no harm.
  counter.store(counter.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

}  // namespace

bool Connection::attach(SharedMemory* memory, unsigned side, int memfd, EndHold end) noexcept {
  if (end.state != nullptr) end_ = end;
  prepare();
  if (end_.state == nullptr) return false;
  memory_ = memory;
  side_ = side;
  keep_open(memfd);
  noted_.store(0, std::memory_order_relaxed);
  note_user();
  return true;
}

void Connection::prepare() noexcept {
  if (end_.state == nullptr) end_ = new_end();
}

void Connection::detach(bool shared) noexcept {
  release_end(std::exchange(end_, {}), shared);
  memory_ = nullptr;
  in_table_ = false;
}

void Connection::note_user() const noexcept {
  if (const std::uint32_t id = process_id(); shown().pid.load(std::memory_order_relaxed) != id)
    shown().pid.store(id, std::memory_order_relaxed);
}

int Connection::alive(int fd) const noexcept {
  const auto means_this = [this](int number) {
    // Relaxed: only the address counts.
    const Object* object = descriptor_entry(number).load(std::memory_order_relaxed);
    return object != nullptr && &object->connection == this;
  };
  if (!in_table_ || (fd >= 0 && fd < kMostDescriptors && means_this(fd))) [[likely]]
    return fd;
  for (int other = 0; other <= highest_known(); ++other)
    if (means_this(other)) return other;
  return -1;
}

void Connection::unmap() const noexcept { munmap(memory_, kMemoryBytes); }

bool Connection::peer_has_left() const noexcept {
  const std::uint32_t note = peer().note.load(std::memory_order_acquire);
  return flag(kPeerGone) && (note == kClosedInOrder || note == kClosedUnread);
}

std::byte* Connection::ring(unsigned direction) const noexcept {
  return reinterpret_cast<std::byte*>(memory_) + kHeaderBytes + direction * kRingBytes;
}

std::size_t Connection::capacity(unsigned sender) const noexcept {
  const std::size_t send = memory_->send_buffer[sender].load(std::memory_order_relaxed);
  const std::size_t receive = memory_->receive_buffer[1 - sender].load(std::memory_order_relaxed);
  // Where the kernel chooses the size on one side, no program can count on a limit.
  if (send == 0 || receive == 0) [[likely]]
    return kRingBytes;
  return std::min(send + receive, kRingBytes);
}

void Connection::set_buffers(std::uint32_t send, std::uint32_t receive) const noexcept {
  memory_->send_buffer[side_].store(send, std::memory_order_relaxed);
  memory_->receive_buffer[side_].store(receive, std::memory_order_relaxed);
}

long Connection::take(int fd, posix::Buffers& to, bool peek) noexcept {
  Direction& from = in();
  std::size_t taken = 0;
  if (from.tail.load(std::memory_order_relaxed) == from.head.load(std::memory_order_relaxed))
    return 0;
  {
    const Locked lock(own().receive_lock);
    if (!lock) return -EAGAIN;
    const std::uint64_t head = from.head.load(std::memory_order_relaxed);  // ours alone
    const std::uint64_t tail = from.tail.load(std::memory_order_acquire);
    const std::uint64_t there = tail - head;
    if (there == 0 || flag(kBroken)) return 0;
    if (there > kRingBytes) {
      broken(kImpossible);
      return 0;
    }
    const std::byte* bytes = ring(1 - side_);
    const std::size_t first = std::min<std::size_t>(there, kRingBytes - (head & kMask));
    taken = to.put(bytes + (head & kMask), first);
    if (taken == first) taken += to.put(bytes, there - first);
    if (peek) return static_cast<long>(taken);
    from.head.store(head + taken, std::memory_order_release);
    note_user();
    add(shown().received_bytes, taken);
    add(shown().receives, 1);
  }
  // Full barrier between the head and the look at the bell: see Direction.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (awaited(from.room_bell)) {
    const std::uint64_t unread =
        from.tail.load(std::memory_order_relaxed) - from.head.load(std::memory_order_relaxed);
    const std::size_t most = capacity(1 - side_);
    if (unread + most / kRoomPart <= most) ring_bell(fd, from.room_bell);
  }
  return static_cast<long>(taken);
}

long Connection::put(int fd, posix::Buffers& from) noexcept {
  Direction& to = out();
  const std::size_t wanted = from.left();
  std::size_t done = 0;
  {
    const Locked lock(own().send_lock);
    if (!lock) return -EAGAIN;
    const std::uint64_t tail = to.tail.load(std::memory_order_relaxed);  // ours alone
    std::uint64_t used = tail - to.head_seen.load(std::memory_order_relaxed);
    const std::size_t most = capacity(side_);
    if (used + wanted > most) {
      // For a writer that waits for the next room, of which there may be too little now. Full
      // barrier before the look at the head: see Direction.
      to.room_bell.fetch_and(~kRung, std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      const std::uint64_t head = to.head.load(std::memory_order_acquire);
      to.head_seen.store(head, std::memory_order_relaxed);
      used = tail - head;
    }
    if (used > kRingBytes) {
      broken(kImpossible);
      return 0;
    }
    const std::size_t room = most - std::min<std::uint64_t>(used, most);
    std::byte* bytes = ring(side_);
    const std::size_t first = std::min<std::size_t>(room, kRingBytes - (tail & kMask));
    done = from.take(bytes + (tail & kMask), first);
    if (done == first) done += from.take(bytes, room - first);
    if (done < wanted) {
      own().full.fetch_add(1, std::memory_order_relaxed);
      add(shown().stalls, 1);
    }
    if (done != 0) {
      to.tail.store(tail + done, std::memory_order_release);
      note_user();
      add(shown().sent_bytes, done);
      add(shown().sends, 1);
    }
  }
  // Full barrier between the tail and the look at the bell: see Direction.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (done != 0 && awaited(to.data_bell)) ring_bell(fd, to.data_bell);
  // Shut down meanwhile by the handler of a signal.
  if (flag(kWriteShut) && to.ended.load(std::memory_order_relaxed) == 0) [[unlikely]]
    end_sending(fd);
  return static_cast<long>(done);
}

void Connection::ring_bell(int fd, std::atomic<std::uint32_t>& bell) noexcept {
  // Only one of several publishers rings. Acquire-release is more than enough: the byte that is
  // sent orders everything before it for its receiver.
  if ((bell.fetch_or(kRung, std::memory_order_acq_rel) & kRung) != 0) return;
  fd = alive(fd);
  if (fd < 0) return;
  add(shown().rings, 1);
  const int kept_errno = errno;
  // Not libc's send: no cancellation point, and not ours. If the kernel has no room for the byte,
  // then there are others that the peer has not read yet, and which wake it.
  if (system_call(SYS_sendto, fd, &kRing, 1, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0) < 0) {
    if (is_loss(errno)) {
      peer_gone(errno);  // the kernel does not say it again
    } else if (errno != EAGAIN && errno != EBADF) {
      look_at_kernel(fd);
    }
  }
  errno = kept_errno;
}

posix::EdgeMarks Connection::edge_marks() const noexcept {
  const std::uint64_t tail = in().tail.load(std::memory_order_acquire);
  // A peer that has sent its end tells nothing new by closing.
  const bool end = peer_has_ended() || flag(kPeerGone);
  // Acquire: a thread that sees a shutdown counted sees its flags.
  const std::uint32_t state = (own().shutdowns.load(std::memory_order_acquire) << 2U) |
                              (flag(kReset) ? 2U : 0U) | (end ? 1U : 0U);
  return {tail, state, own().full.load(std::memory_order_relaxed)};
}

std::size_t Connection::readable_bytes() const noexcept {
  const Direction& from = in();
  const std::uint64_t there =
      from.tail.load(std::memory_order_acquire) - from.head.load(std::memory_order_relaxed);
  return there > kRingBytes || (there != 0 && flag(kBroken)) ? 0 : there;
}

std::size_t Connection::unread_by_peer() const noexcept {
  const Direction& to = out();
  return to.tail.load(std::memory_order_relaxed) - to.head.load(std::memory_order_acquire);
}

std::size_t Connection::free_bytes() const noexcept {
  const std::size_t most = capacity(side_);
  const std::size_t unread = unread_by_peer();
  if (unread > kRingBytes) return most;  // impossible, as put() will find out
  return most - std::min(unread, most);
}

bool Connection::room(std::size_t wanted) const noexcept {
  return free_bytes() >= std::min(wanted, capacity(side_) / kRoomPart);
}

int Connection::receive_state(int fd, bool begun) noexcept {
  // Where the end is told because of our own shutdown, a reset is told before it.
  if (peer().note.load(std::memory_order_acquire) != kNotClosed || flag(kReadShut))
    look_for_end(fd);
  const Direction& from = in();
  const std::uint64_t head = from.head.load(std::memory_order_relaxed);
  if (from.tail.load(std::memory_order_acquire) - head > kRingBytes &&
      head == from.head.load(std::memory_order_relaxed))
    broken(kImpossible);
  if (!peer_has_ended() && !flag(kEnded | kPeerGone | kReset | kReadShut)) return 0;
  // The bytes before the end: the tail may have moved between the caller's look and ours.
  if (readable_bytes() != 0) return 0;
  // Bytes that went past us before the end are missing in front of it.
  if (!flag(kPeerGone)) look_at_rings(fd);
  return own().tcp.receive_state(peer_has_ended(), begun);
}

int Connection::send_state(int fd, bool begun) noexcept {
  if (is_to_be_asked()) look_for_end(fd);
  if (const int state = own().tcp.send_state(begun); state != 0) return state;
  // One that has shut down both ways resets what still comes. Relaxed: what is sent at the same
  // time may come before.
  constexpr std::uint32_t kBothShut = kReadShut | kWriteShut;
  return (peer().shut.load(std::memory_order_relaxed) & kBothShut) == kBothShut ? 1 : 0;
}

void Connection::sent_to_nobody(int fd) noexcept {
  if (!own().tcp.sent_to_nobody()) return;
  if (!flag(kPeerGone)) shown().note.store(kSentInVain, std::memory_order_release);
  fd = alive(fd);
  if (fd < 0) return;
  // Wakes the peer; or, as the kernel's peer that has closed answers by a reset, the threads that
  // sleep at this end.
  const int kept_errno = errno;
  system_call(SYS_sendto, fd, &kRing, 1, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
  errno = kept_errno;
}

bool Connection::is_over(int fd) noexcept {
  look_for_end(fd);
  return own().tcp.is_over(peer_has_ended());
}

unsigned Connection::poll_mask() const noexcept {
  // The end first: bytes that come before it are seen too then.
  const bool ended = peer_has_ended();
  return own().tcp.mask(ended, readable_bytes() != 0,
                        [this]() noexcept { return room(kRingBytes); });
}

unsigned Connection::poll_mask(int fd) noexcept {
  if (peer().note.load(std::memory_order_acquire) != kNotClosed && !flag(kPeerGone))
    look_at_kernel(fd);
  return poll_mask();
}

unsigned Connection::arm(unsigned events, unsigned held) noexcept {
  const auto arm_bell = [&](std::atomic<std::uint32_t>& bell, unsigned which) {
    if ((held & which) == 0) bell.fetch_add(kSleeper, std::memory_order_relaxed);
    held |= which;
    if ((bell.load(std::memory_order_relaxed) & kRung) != 0)
      bell.fetch_and(~kRung, std::memory_order_relaxed);
  };
  if ((events & (POLLIN | POLLRDNORM | POLLRDHUP)) != 0) arm_bell(in().data_bell, kDataBell);
  if ((events & (POLLOUT | POLLWRNORM)) != 0) arm_bell(out().room_bell, kRoomBell);
  // Full barrier between the words and the caller's next look: see Direction.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return held;
}

unsigned Connection::arm_for_next_room(unsigned held) noexcept {
  if ((held & kRoomBell) == 0) out().room_bell.fetch_add(kSleeper, std::memory_order_seq_cst);
  return held | kRoomBell;
}

void Connection::leave(unsigned bells) noexcept {
  // Relaxed: nothing depends on it but bells.
  if ((bells & kDataBell) != 0) in().data_bell.fetch_sub(kSleeper, std::memory_order_relaxed);
  if ((bells & kRoomBell) != 0) out().room_bell.fetch_sub(kSleeper, std::memory_order_relaxed);
}

void Connection::look_at_kernel(int fd, bool listening) noexcept {
  fd = alive(fd);
  if (fd < 0) return;
  const int kept_errno = errno;
  const std::uint32_t note = peer().note.load(std::memory_order_acquire);
  const Listening ours(listening ? nullptr : &own());
  // An urgent byte that the program has not read yet would be lost if rings beyond it were taken.
  int at_mark = 0;
  const bool keep = has_urgent(fd) && real().ioctl(fd, SIOCATMARK, &at_mark) == 0 && at_mark != 0;
  const int peek = (listening || ours.ours()) && !keep ? 0 : MSG_PEEK;
  const long got = take_rings(fd, peek);
  const auto ended = [fd] {
    tcp_info info{};
    socklen_t bytes = sizeof(info);
    return system_call(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
           info.tcpi_state != TCP_ESTABLISHED;
  };
  bool gone = false;
  int error = 0;
  if (got == 0) {
    gone = bell_rings() || ended();  // after our own SHUT_RD the kernel says 0 too
  } else if (got > 0) {
    // Behind rings, which hide a death too where they are left.
    gone = (note != kNotClosed || peek != 0) && ended();
  } else {
    gone = errno != EAGAIN && errno != EINTR && errno != EBADF;
    error = errno;
  }
  if (gone || note == kSentInVain) {
    peer_gone(error);
  } else if (got != 0 && !flag(kPeerGone)) {
    outdate_note(note);
  }
  errno = kept_errno;
}

// Or, with MSG_PEEK, only looks at them. Returns what the last recv() of the kernel gave.
long Connection::take_rings(int fd, int peek) noexcept {
  // As a rule there are a few, and one call brings all.
  constexpr int kMostCalls = 1024;
  std::array<char, 1024> rings;
  long got = 0;
  for (int calls = 0; calls < kMostCalls; ++calls) {
    got = system_call(SYS_recvfrom, fd, rings.data(), rings.size(), MSG_DONTWAIT | peek, nullptr,
                      nullptr);
    if (got > 0) check_rings(rings.data(), static_cast<std::size_t>(got), peek != 0);
    if (got < std::ssize(rings) || peek != 0 || flag(kBroken)) break;
  }
  return got;
}

void Connection::look_at_rings(int fd) noexcept {
  fd = alive(fd);
  if (fd < 0) return;
  // Closed out of our sight, the number may mean another file by now, whose bytes are its own.
  const Reference object = find(fd);
  if (object && !is_current(fd, *object)) return;
  const int kept_errno = errno;
  take_rings(fd, MSG_PEEK);
  errno = kept_errno;
}

void Connection::check_rings(const char* rings, std::size_t count, bool peeked) noexcept {
  const auto strange = static_cast<std::uint32_t>(
      std::count_if(rings, rings + count, [](char one) { return one != kRing; }));
  if (strange == 0) return;
  // Urgent bytes are among the rings where the program has set SO_OOBINLINE, or where another came
  // before the program took them.
  std::uint32_t all = own().strange.load(std::memory_order_relaxed) + strange;
  if (!peeked) all = own().strange.fetch_add(strange, std::memory_order_relaxed) + strange;
  if (all > peer().urgents.load(std::memory_order_relaxed)) broken(kStrange);
}

void Connection::broken(const char* what) noexcept {
  if (flag(kReset) || (own().tcp.raise(kBroken) & kBroken) != 0) return;
  const Undisturbed undisturbed;
  log(Level::kError, "%s %s, so the connection is reset", peer_address().text().c_str(), what);
  shown().aborts.store(1, std::memory_order_relaxed);
  own().tcp.peer_gone(false, ECONNRESET);
}

void Connection::shutdown(int fd, int how) noexcept {
  if (how == SHUT_WR || how == SHUT_RDWR) {
    // The barrier: a thread that goes to sleep sees the flag, or we see it asleep.
    own().tcp.flags.fetch_or(kWriteShut, std::memory_order_seq_cst);
    shown().shut.fetch_or(kWriteShut, std::memory_order_relaxed);
    if (own().senders_asleep.load(std::memory_order_seq_cst) != 0) wake_senders(fd);
    if (!own().send_lock.held_here()) end_sending(fd);  // else put() does, which this interrupts
  }
  if (how == SHUT_RD || how == SHUT_RDWR) {
    own().tcp.flags.fetch_or(kReadShut, std::memory_order_acq_rel);
    shown().shut.fetch_or(kReadShut, std::memory_order_relaxed);
    // Sends nothing to the peer, but wakes the sleepers here.
    real().shutdown(fd, SHUT_RD);
  }
  // Release: after the flags.
  own().shutdowns.fetch_add(1, std::memory_order_release);
}

void Connection::end_sending(int fd) noexcept {
  const Locked lock(own().send_lock);
  // Release: after the last tail. The barrier: see Direction.
  out().ended.store(1, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (awaited(out().data_bell)) ring_bell(fd, out().data_bell);
}

void Connection::wake_senders(int fd) const noexcept {
  own().turn.fetch_add(1, std::memory_order_seq_cst);
  system_call(SYS_futex, &own().turn, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  // One may sleep in the kernel's recv(), and nothing else ends that. From then on nobody at this
  // end can sleep there.
  own().tcp.flags.fetch_or(kBellShut, std::memory_order_acq_rel);
  real().shutdown(fd, SHUT_RD);
}

}  // namespace leat::preload
