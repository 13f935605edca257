// One end of a connection as TCP shows it to a program, over a channel: a byte stream, its ends and
// errors, and what poll() says of it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/counter.h"
#include "leat/error.h"
#include "socket/c/arrivals.h"
#include "socket/c/buffers.h"
#include "socket/channel_core.h"

namespace leat::detail::c {

// No call blocks. Any thread, any time: each side has a lock, held for the moment of a call only.
//
// The stream is the bytes of the messages of context 0. The kernel's connection beside, the
// lifeline, tells a reset from an end: the peer resets it with its own, and the kernel ends it in
// order when the peer's process ends, as it does with TCP. A close also says, in context 1, how
// much of our bytes it has had.
class StreamEnd {
 public:
  explicit StreamEnd(std::unique_ptr<ChannelCore> core);
  StreamEnd(const StreamEnd&) = delete;
  StreamEnd& operator=(const StreamEnd&) = delete;
  // Closes as TCP: a reset if bytes are unread, or if `abort()` said so before.
  ~StreamEnd();

  // How many bytes were taken, 0 if none are there. `peek` leaves them, `discard` does not copy.
  std::size_t take(Buffers& to, bool peek, bool discard);
  // After take() gave 0: 0 if more may come, 1 at the end, or -errno.
  int receive_state();
  // How many bytes were accepted, 0 if there is no room.
  std::size_t put(Buffers& from);
  // Nothing that was put waits for a further call to be sent.
  bool flushed();
  // Before put(): 0, -errno, or 1 if the bytes are to be dropped, because TCP would take them. A
  // call that has `begun` to put something returns that, and leaves the error for the next.
  int send_state(bool begun);
  // Bytes were dropped: TCP is told by a reset that nobody is there, and refuses what follows.
  void sent_to_nobody();

  // What poll() says. `closely`: also of the lifeline and behind bytes that are unread; and fd()
  // becomes readable by what comes next.
  unsigned mask(bool closely);
  // Grows with each event that wakes an edge-triggered waiter. After mask().
  std::uint64_t edges() const { return edges_.load(std::memory_order_relaxed); }
  // Takes all in that has come, and counts it as edges.
  void drain();
  // Who waits must look again after a short while, because no event tells.
  bool waits_silently(unsigned events);

  std::size_t readable_bytes();
  // SO_ERROR, which reading clears.
  int take_error() { return error_.exchange(0, std::memory_order_acq_rel); }
  void shutdown(int how);
  // Nothing comes after what is here.
  bool ended() const { return flag(kEnded | kReadShut | kPeerGone | kReset); }
  // send_state() has something to say.
  bool sending_ended() const { return flag(kWriteShut | kPeerGone | kReset); }
  // Both directions have ended, or it was reset: as TCP's state CLOSE. After mask().
  bool is_over() const { return flag(kReset) || (flag(kWriteShut) && flag(kEnded | kPeerGone)); }
  // As in TCP_INFO. The other states last until the peer's kernel has acknowledged, which is at
  // once.
  int tcp_state();
  // connect() to AF_UNSPEC: both ends have a reset.
  void dissolve();
  // The end comes as a reset.
  void abort() { abort_.store(true, std::memory_order_relaxed); }
  // Waits until all that was sent is in the peer's memory, for SO_LINGER.
  void linger(std::chrono::milliseconds limit);

  int fd() { return core_->fd(); }
  ChannelCore& core() { return *core_; }

 private:
  enum Flag : unsigned {
    kWriteShut = 1,
    kReadShut = 2,
    kEnded = 4,   // the stream's end has come
    kFailed = 8,  // the transport found the peer gone; kPeerGone follows
    kPeerGone = 16,
    kReset = 32
  };

  bool flag(unsigned flags) const { return (flags_.load(std::memory_order_acquire) & flags) != 0; }
  void raise(unsigned flags);
  void end_at_once();
  std::size_t put_some(Buffers& from);
  bool next();
  bool pull();
  void pull_all();
  void prepare();
  void kick();
  void show_the_rest();
  void keep(Message message);
  unsigned hear_closing_statement();
  void transport_failed(const Error& error);
  void look_at_lifeline();
  void peer_gone();
  bool room();
  void try_to_end();

  ChannelCore* const core_;  // orphaned at the end
  const std::size_t part_bytes_;
  const std::size_t room_bytes_;  // POLLOUT is said from so much room on
  const bool probes_room_;
  const bool whole_parts_;   // what was offered must be offered again
  const bool keeps_output_;  // transport tcp: what the kernel did not take yet goes by later calls

  std::atomic<unsigned> flags_{0};
  std::atomic<int> error_{0};
  std::atomic<std::uint64_t> edges_{1};
  std::atomic<bool> abort_{false};

  std::mutex receive_mutex_;
  Arrivals arrivals_;
  std::uint64_t taken_bytes_ = 0;  // by the program
  bool receive_over_ = false;      // the transport has no more
  bool prepared_ = false;

  std::atomic<std::int64_t> asked_{0};  // when a sender last looked at the lifeline

  std::mutex send_mutex_;
  Counter sent_bytes_;  // read also by who receives the peer's last word
  bool full_ = false;
  std::chrono::steady_clock::time_point full_since_;
  std::size_t refused_bytes_ = 0;  // the part that whole_parts_ is about
  bool end_wanted_ = false;

  // Before kFailed.
  std::atomic<int> failure_{0};
  std::atomic<Deadline> failure_deadline_{kNoDeadline};
  std::mutex end_mutex_;  // within the others: one thread draws the consequences
};

}  // namespace leat::detail::c
