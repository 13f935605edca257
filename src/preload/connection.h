// One end of a carried connection: bytes through shared memory, the kernel's TCP connection beside
// it as doorbell and to learn that the peer has closed or died.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "posix/epoll_interest.h"
#include "posix/iovecs.h"
#include "preload/end_state.h"
#include "preload/shared_memory.h"

namespace leat::preload {

// The state is in memory that processes share, so a copy of this in a forked child is as good.
// Calls take the descriptor that the program used, to reach the kernel's socket. Threads: any, any
// process of this end; never blocks but for a copy of bytes by another. No call is a cancellation
// point.
class Connection {
 public:
  // `memfd`, which is hidden, is kept open, to pass it to programs that are executed; -1 if there
  // was no number left. `end`: of processes that have this end too; empty for a state of its own.
  // False: memory ran out, and nothing is attached.
  bool attach(SharedMemory* memory, unsigned side, int memfd, EndHold end = {}) noexcept;
  // Before a fork of a process that will attach memory only later: both will have the same state.
  void prepare() noexcept;
  // From now on a descriptor that does not mean this connection is left alone (descriptors.h).
  void is_in_table() noexcept { in_table_ = true; }
  // `fd` if it still does, else another that does, or -1: another thread may have closed it while a
  // call goes on, and the kernel may have given the number to somebody else.
  int alive(int fd) const noexcept;
  void unmap() const noexcept;
  // `shared`: another process may have this end too.
  void detach(bool shared) noexcept;

  // Takes up to what the buffers hold; 0: nothing there. Rings if the peer waits for room.
  long take(int fd, posix::Buffers& to, bool peek) noexcept;
  // Puts as much as there is room for; rings if the peer waits for data. Both: -EAGAIN if this
  // thread is already at it, interrupted by the signal whose handler calls.
  long put(int fd, posix::Buffers& from) noexcept;

  // As TcpState says it, after a look for the peer's end if there may be one. A call that has
  // `begun` to transfer bytes returns their number, and leaves an error to the next.
  int receive_state(int fd, bool begun = false) noexcept;
  int send_state(int fd, bool begun = false) noexcept;
  // As SO_ERROR, which reports an error once.
  int take_error(int fd) noexcept;
  // The same, but asks the kernel only once in a tick, as long as nothing suggests an end.
  int take_known_error(int fd) noexcept;
  // Bytes were sent where send_state() is 1: TCP's peer answers by a reset.
  void sent_to_nobody(int fd) noexcept;

  // For a caller that only asks and does not sleep, once in a while: whether the peer is gone
  // without a word.
  bool is_found_gone(int fd) noexcept;
  // For a caller that can do without the kernel: true once in a tick of its clock, when the caller
  // must ask the kernel all the same, because nothing else knows of a peer that was killed.
  bool is_to_be_asked() noexcept;

  std::size_t readable_bytes() const noexcept;
  std::size_t unread_by_peer() const noexcept;
  std::size_t free_bytes() const noexcept;
  bool room(std::size_t wanted) const noexcept;
  // How many bytes can lie unread: the ring, or less where both programs have set their buffers.
  std::size_t most_unread() const noexcept { return capacity(1 - side_); }
  void set_buffers(std::uint32_t send, std::uint32_t receive) const noexcept;
  // Both directions have ended, or it was reset: as TCP's state CLOSE.
  bool is_over(int fd) noexcept;
  // As in TCP_INFO. The other states last until the peer's kernel has acknowledged, which is at
  // once.
  int tcp_state(int fd) noexcept;
  // What poll(2) would say: POLLIN, POLLOUT, POLLRDHUP, POLLHUP, POLLERR. With a descriptor it
  // first follows up a word of the peer's that it has closed.
  unsigned poll_mask() const noexcept;
  unsigned poll_mask(int fd) noexcept;
  // Before sleeping: has the doorbells rung for what comes next of `events` (as for poll); look
  // again afterwards. Counts the caller in, until leave(), for those that are not among `held`, and
  // returns these.
  unsigned arm(unsigned events, unsigned held) noexcept;
  // The same, but only once a sender has found no room since.
  unsigned arm_for_next_room(unsigned held) noexcept;
  void leave(unsigned bells) noexcept;

  // Takes the doorbells off the kernel's socket and learns whether the peer has gone. `listening`:
  // the caller is the one that hears the doorbell (listening.h).
  void look_at_kernel(int fd, bool listening = false) noexcept;
  // Resets the connection if these bytes, which the kernel's socket gave, are not all doorbells:
  // the peer's program wrote them past leat, so they are missing among those that are carried.
  void check_rings(const char* rings, std::size_t count, bool peeked = false) noexcept;
  // For a send that goes on by the kernel with an urgent byte, or that failed to.
  void count_urgent(bool goes) const noexcept {
    // Relaxed: the kernel's socket orders it before the byte for the peer that gets that.
    shown().urgents.fetch_add(goes ? 1U : ~0U, std::memory_order_relaxed);
  }
  // The kernel's socket has ended: its peer closed, was killed, or reset it; or, if `error` says
  // so, cannot be reached any more (SO_KEEPALIVE).
  void peer_gone(int error = 0) noexcept;

  void shutdown(int fd, int how) noexcept;
  // The program closes a descriptor; if it is the last, the peer finds this. `in_use`: by a call of
  // another thread.
  void note_closing(int fd, bool in_use) const noexcept;
  // The last call that a close overtook is over.
  void note_closed() const noexcept;

  EndState& own() const noexcept { return *end_.state; }
  const EndHold& end() const noexcept { return end_; }
  // What the peer sees of this end, and what this one sees of the peer's.
  Side& shown() const noexcept { return memory_->sides[side_]; }
  Side& peer() const noexcept { return memory_->sides[1 - side_]; }
  SharedMemory* memory() const noexcept { return memory_; }
  // Whether the bell wakes a sleeper at the kernel's socket; if not, a sleeper there is always
  // awake there.
  bool bell_rings() const noexcept { return !flag(kReadShut | kBellShut); }
  unsigned side() const noexcept { return side_; }
  const Address& peer_address() const noexcept {
    return side_ == 0 ? memory_->acceptor : memory_->connector;
  }
  // Relaxed: the thread that closes it has taken it by give_up_memfd().
  int memfd() const noexcept { return memfd_.load(std::memory_order_relaxed); }
  void keep_open(int memfd) noexcept { memfd_.store(memfd, std::memory_order_relaxed); }
  int give_up_memfd() noexcept { return memfd_.exchange(-1, std::memory_order_relaxed); }
  // The peer has closed its socket, and was in no call.
  bool peer_has_left() const noexcept;
  // The kernel has said that the peer's socket is closed.
  bool is_peer_gone() const noexcept { return flag(kPeerGone); }
  posix::EdgeMarks edge_marks() const noexcept;

 private:
  Direction& out() const noexcept { return memory_->directions[side_]; }
  Direction& in() const noexcept { return memory_->directions[1 - side_]; }
  std::byte* ring(unsigned direction) const noexcept;
  std::size_t capacity(unsigned sender) const noexcept;
  void ring_bell(int fd, std::atomic<std::uint32_t>& bell) noexcept;
  // That this process uses this end, for leat-stat.
  void note_user() const noexcept;
  void wake_senders(int fd) const noexcept;
  void end_sending(int fd) noexcept;
  // Looks at the kernel only if there may be an end, and then also behind rings that came before.
  void look_for_end(int fd) noexcept;
  // The peer breached what was agreed: it `what`. Whatever it sends or says now, the program gets
  // ECONNRESET and no further byte, and the peer a reset when the program closes.
  void broken(const char* what) noexcept;
  long take_rings(int fd, int peek) noexcept;
  // For bytes that nobody takes as long as no thread sleeps at this end.
  void look_at_rings(int fd) noexcept;
  // Errors that end a connection though the peer did not end it.
  static bool is_loss(int error) noexcept;
  // The peer says that nothing follows what it has sent.
  bool peer_has_ended() const noexcept {
    return in().ended.load(std::memory_order_acquire) != 0 && !flag(kBroken);
  }
  void outdate_note(std::uint32_t note) noexcept;
  bool is_note_old() const noexcept;
  bool flag(std::uint32_t wanted) const noexcept { return own().tcp.has(wanted); }

  SharedMemory* memory_ = nullptr;
  EndHold end_;
  unsigned side_ = 0;
  std::atomic<int> memfd_{-1};
  bool in_table_ = false;
  // When a caller that only asks last asked the kernel: races do no harm.
  std::atomic<std::int64_t> asked_{0};
  std::atomic<std::int64_t> looked_at_rings_{0};
  // Since when the peer's note has stood though the kernel knows of no end; 0: there is no note.
  std::atomic<std::int64_t> noted_{0};
};

// A sleeper, or a thread about to sleep: the doorbells are rung for it while this lives.
class Asleep {
 public:
  Asleep(Connection& connection, unsigned events) noexcept
      : connection_(&connection), bells_(connection.arm(events, 0)) {}
  ~Asleep() { connection_->leave(bells_); }
  Asleep(Asleep&& other) noexcept
      : connection_(other.connection_), bells_(std::exchange(other.bells_, 0)) {}
  Asleep& operator=(Asleep&&) = delete;

 private:
  Connection* connection_;
  unsigned bells_;
};

}  // namespace leat::preload
