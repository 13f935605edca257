// What stands behind a Channel: a transport and its lifeline, blocking and deadlines, statistics.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/counter.h"
#include "base/fd.h"
#include "base/fork.h"
#include "base/settings.h"
#include "leat/channel.h"
#include "transport/connection.h"

namespace leat::detail {

// Threads as for Channel. Lives until the channel and all its messages are gone: the messages point
// into the transport's memory.
class ChannelCore {
 public:
  ChannelCore(Connection connection, const Settings& settings);
  ~ChannelCore();

  // The record that a message of a transport attested+X came in; empty for others.
  static std::span<const std::byte> record_of(const Message& message);
  static ChannelCore& of(Channel& channel) { return *channel.core_; }

  void send(std::span<const std::byte> message, unsigned context);
  bool try_send(std::span<const std::byte> message, unsigned context);
  // try_send of context 0 for who waits, and so looks at the lifeline when it is time.
  bool offer(std::span<const std::byte> message);
  std::span<std::byte> reserve(std::size_t bytes, unsigned context);
  void commit(std::size_t bytes);
  void abandon();
  void flush();
  // For who waits for room of several channels. Send side.
  void arm_for_room();
  bool try_flush();
  void shutdown();
  // The first step of shutdown(), then try_flush(). True once it is done.
  bool try_shutdown();

  // Whether a message of context 0 with so many bytes (at most max_in_place_bytes) has room now.
  // Not for transports whose reservations always succeed: tcp, attested+X.
  bool has_room(std::size_t bytes);

  Message receive(unsigned context);
  std::optional<Message> try_receive(unsigned context);
  // try_receive for who spins: looks neither at the lifeline nor after fd().
  std::optional<Message> glance(unsigned context = 0);
  // Makes fd(), which begins so, readable until the next try_receive without result, and wakes its
  // edge-triggered waiters. Receive side.
  void kick() noexcept;
  bool kicked() const { return kicked_; }
  // A receiver must not trust fd() alone now, but look again after a short while. Receive side.
  bool receives_silently() const { return transport_.receiving_waits_for_room(); }

  // Waits for another thread that sends to notice; so not from within a view's own sending.
  void close() noexcept;
  // Whoever uses this channel gets kClosed from now on, also who waits.
  void interrupt() noexcept;
  int fd();
  Stats stats() const;

  // Limits of one blocking call from now on, each of the thread of its side; negative: none.
  void set_send_timeout(std::chrono::milliseconds timeout) { send_timeout_ = timeout; }
  void set_receive_timeout(std::chrono::milliseconds timeout) { receive_timeout_ = timeout; }
  // Ends the connection at once without saying so: the peer gets an error, and the lifeline too
  // ends by a reset.
  void reset() noexcept;

  std::chrono::milliseconds receive_timeout() const { return receive_timeout_; }
  // The peer is gone. What it had sent before may still be there: look for that after this, and if
  // nothing is found ask again, because the look may have begun to resume.
  bool lifeline_ended() const noexcept;

  const Connection& connection() const { return connection_; }
  const Settings& settings() const { return settings_; }

  // For who polls, and found nothing: whether the peer may have gone, which is looked for now and
  // then. If so look again, because what came before counts, and then check_not_gone, which throws
  // kPeerDied if the peer has gone. Receive side.
  bool may_be_gone();
  void check_not_gone(const char* what);
  // What the transport, which does not know its peer, says to `call`: what ends the connection is
  // told with the peer and with what to do.
  template <typename Call>
  auto ask(const char* what, Call&& call) const;

  // For other views of the connection than Channel. Throws kClosed, kInvalidArgument.
  void check_usable(unsigned context) const;
  void check_sending() const {
    if (closed() || end_said_) [[unlikely]]
      check_usable(0);
  }
  void check_open(const char* what) const {
    if (closed()) [[unlikely]]
      throw_closed(what);
  }
  // The one place where leat waits: until `try_once` returns true, within that side's timeout.
  // Spins for a while, then arms the transport and sleeps. Defined in channel_wait.h.
  template <typename Try>
  void wait(Side side, const char* what, Try&& try_once);

  // Receive side: a message that must be released was destroyed. May destroy the core.
  void release(const Message& message) noexcept;
  // The channel is gone.
  static void orphan(ChannelCore* core) noexcept;

 private:
  friend class AnyWaiter;
  friend class Lingerer;
  class Sending;
  using Comes = Transport::Comes;

  bool closed() const { return closed_.load(std::memory_order_relaxed) || !made_here_; }
  [[noreturn]] void throw_closed(const char* what) const;
  // From within the handler of `error`.
  [[noreturn]] void rethrow(const char* what, const Error& error) const;
  [[noreturn]] void throw_gone(const char* what) const;
  void say_closed() noexcept;
  void wait_for_sender() noexcept;
  void wait_for_flush();
  void count_sent(std::size_t bytes);
  void count_received(std::size_t bytes);
  ReceiveResult look(unsigned context, Delivery& delivery);
  ReceiveResult prepare_poll(unsigned context, Delivery& delivery);
  ReceiveResult receive_the_rest(unsigned context, Delivery& delivery);
  Message adopt(Delivery& delivery);
  void sleep(Side side, Deadline deadline, std::chrono::microseconds& nap);
  Comes messages_come() const {
    return transport_.receiving_waits_for_room() ? Comes::kSilently : Comes::kWithEvent;
  }
  Transport::Found found_since_last_sleep();
  bool takes_nap(const Transport::Found& found);
  void nap_briefly();
  std::string where() const;

  const MadeHere made_here_;
  const Settings settings_;
  Connection connection_;
  const NotInherited lifeline_stays_{connection_.stream->fd()};  // our death must end it
  Transport& transport_;
  std::atomic<bool> peer_gone_ = false;  // a receiver has seen the lifeline's end
  const bool watches_lifeline_;          // tcp notices the end of its stream by itself

  const Fd closing_;  // readable once closed_ is set: wakes who sleeps
  std::atomic<bool> closed_{false};
  std::atomic<bool> close_begun_{false};
  bool end_said_ = false;  // send side
  std::chrono::milliseconds send_timeout_;
  std::chrono::milliseconds receive_timeout_;

  // receive side
  std::size_t messages_out_ = 0;
  unsigned fruitless_looks_ = 0;
  Deadline next_lifeline_look_{};
  Transport::Found found_by_looking_;  // when it slept last
  unsigned naps_left_ = 0;
  std::chrono::microseconds nap_{0};  // the next one
  bool orphaned_ = false;
  Fd poll_fd_;  // for fd(), once that was called
  Fd kick_;     // makes poll_fd_ readable by itself
  bool kicked_ = false;

  alignas(64) std::atomic<bool> sending_{false};
  Counter sent_bytes_;
  Counter sent_messages_;
  Counter rounds_;
  Counter flushes_;
  Counter send_sleeps_;
  alignas(64) Counter received_bytes_;
  Counter received_messages_;
  Counter receive_sleeps_;
  // Set by the receiving, cleared by the sending thread; for rounds_.
  std::atomic<bool> received_last_{false};
};

}  // namespace leat::detail
