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
#include "capi/arrivals.h"
#include "channel/channel_core.h"
#include "leat/error.h"
#include "posix/epoll_interest.h"
#include "posix/iovecs.h"
#include "posix/tcp_state.h"

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

  // How many bytes were taken, 0 if none are there. `peek` leaves them.
  std::size_t take(posix::Buffers& to, bool peek);
  // After take() gave 0, and before put(): as TcpState says it.
  int receive_state(bool begun = false);
  // How many bytes were accepted, 0 if there is no room.
  std::size_t put(posix::Buffers& from);
  // Nothing that was put waits for a further call to be sent.
  bool flushed();
  int send_state(bool begun = false);
  // Bytes were dropped where send_state() is 1.
  void sent_to_nobody();

  // What poll() says. `closely`: also of the lifeline and behind bytes that are unread; and fd()
  // becomes readable by what comes next.
  unsigned mask(bool closely);
  // After mask(). Relaxed: a mark only says whether to look again.
  posix::EdgeMarks marks() const {
    return {came_.load(std::memory_order_relaxed), changes_.load(std::memory_order_relaxed),
            refills_.load(std::memory_order_relaxed)};
  }
  // Takes all in that has come, and counts it.
  void drain();
  // A waiter must look again after a short while, because no event tells.
  bool waits_silently(unsigned events);

  std::size_t readable_bytes();
  // SO_ERROR, which reading clears.
  int take_error() { return tcp_.take_error(); }
  void shutdown(int how);
  // Nothing comes after what is here.
  bool ended() const {
    return flag(posix::kEnded | posix::kReadShut | posix::kPeerGone | posix::kReset);
  }
  // send_state() has something to say.
  bool sending_ended() const { return tcp_.sending_ended(); }
  // As TcpState says them. After mask().
  bool is_over() const { return tcp_.is_over(false); }
  int tcp_state() const { return tcp_.tcp_state(false); }
  // connect() to AF_UNSPEC: both ends have a reset.
  void dissolve();
  // The end comes as a reset.
  void abort() { abort_.store(true, std::memory_order_relaxed); }
  // Waits until all that was sent is in the peer's memory, for SO_LINGER.
  void linger(std::chrono::milliseconds limit);

  int fd() { return core_->fd(); }
  ChannelCore& core() { return *core_; }

 private:
  // Beside TCP's own flags: the transport found the peer gone; posix::kPeerGone follows.
  static constexpr unsigned kFailed = 256;

  bool flag(unsigned flags) const { return tcp_.has(flags); }
  void raise(unsigned flags);
  void end_at_once();
  std::size_t put_some(posix::Buffers& from);
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
  bool goes_on_soon() const;
  void try_to_end();
  void wake_at_edges();

  ChannelCore* const core_;  // orphaned at the end
  const std::size_t part_bytes_;
  const std::size_t room_bytes_;  // POLLOUT is said from so much room on
  const bool probes_room_;
  const bool whole_parts_;   // what was offered must be offered again
  const bool keeps_output_;  // what the kernel did not take yet goes by later calls

  posix::TcpState tcp_{};
  // Messages, changes of TCP's state, and how often there was room after there was none.
  std::atomic<std::uint64_t> came_{0};
  std::atomic<std::uint32_t> changes_{0};
  std::atomic<std::uint32_t> refills_{0};
  std::atomic<bool> abort_{false};

  std::mutex receive_mutex_;
  Arrivals arrivals_;
  std::uint64_t taken_bytes_ = 0;  // by the program
  bool receive_over_ = false;      // the transport has no more
  // The peer's closing statement may be what leat-attestd verifies. Written with the lock.
  std::atomic<bool> statement_due_{false};
  bool prepared_ = false;

  std::atomic<std::int64_t> asked_{0};  // when a sender last looked at the lifeline

  std::mutex send_mutex_;
  Counter sent_bytes_;  // read also by the thread that receives the peer's last word
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
