// The implementation of a Channel: a transport and its lifeline, waiting, statistics.
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
#include "base/spin_budget.h"
#include "channel/unfinished_sends.h"
#include "channel/waiting_sides.h"
#include "channel/watch.h"
#include "handshake/connection.h"
#include "leat/channel.h"

namespace leat::detail {

// Threads as for Channel. Lives until the channel and all its messages, which point here, are gone.
class ChannelCore {
  using Comes = Outlook::Comes;

 public:
  static constexpr const char* kWhenEmpty = "this channel was moved from";
  ChannelCore(Connection connection, const Settings& settings);
  ~ChannelCore();

  // The record in which a message of a transport attested+X came; empty for other transports.
  static std::span<const std::byte> record_of(const Message& message);
  static ChannelCore& of(Channel& channel) { return *channel.core_; }
  static Channel channel_of(std::unique_ptr<ChannelCore> core) { return Channel(std::move(core)); }

  void send(std::span<const std::byte> message, unsigned context);
  bool try_send(std::span<const std::byte> message, unsigned context);
  // On context 0, for waiters that look at the lifeline themselves; after false as try_send().
  bool try_send_unwatched(std::span<const std::byte> message);
  void give_up(unsigned context);
  // wait() for a message of that context; gives the message up if the wait throws.
  template <typename Try>
  void wait_to_send(const char* what, unsigned context, Try&& try_once);
  std::span<std::byte> reserve(std::size_t bytes, unsigned context);
  void commit(std::size_t bytes);
  void abandon();
  void flush();
  bool try_flush();
  void arm_for_room();  // for waiters for room on several channels
  void shutdown();
  // The first step of shutdown(); try_flush() is the second. Returns true once the end is accepted.
  bool try_shutdown();

  // Whether so many bytes, at most max_in_place_bytes, have room now. Where it reserves_room.
  bool has_room(std::size_t bytes, unsigned context = 0);

  Message receive(unsigned context);
  std::optional<Message> try_receive(unsigned context);
  // try_receive() for spinning waiters: neither looks at the lifeline nor prepares fd().
  std::optional<Message> glance(unsigned context = 0);
  // Makes fd() readable until the next try_receive() without result, and wakes its edge-triggered
  // waiters; a new fd() begins in that state. Receive side.
  void kick() noexcept;
  bool kicked() const { return kicked_; }
  // Whether a receiver must look again after a short while, whatever fd() says. Receive side.
  bool receives_silently() const;
  // Waits until a sending thread has noticed; so a view must not call it from its own sending.
  void close() noexcept;
  // From now on every call on this channel throws kClosed, also in threads that wait.
  void interrupt() noexcept;
  int fd();
  Stats stats() const;

  // The limit of one blocking call from now on; each side's thread sets its own. Negative: none.
  void set_send_timeout(std::chrono::milliseconds timeout) { send_timeout_ = timeout; }
  void set_receive_timeout(std::chrono::milliseconds timeout) { receive_timeout_ = timeout; }
  // Ends the connection at once: the peer gets an error, and the lifeline ends with a reset.
  void reset() noexcept;

  std::chrono::milliseconds receive_timeout() const { return receive_timeout_; }
  // Whether the peer is gone, or broke the protocol by a byte on its lifeline. Messages sent before
  // may still be there: look for them after this call, and if there are none ask again, as that
  // look may have begun to resume. Of a receiver's, those that are being verified count first.
  bool lifeline_ended(Side side) const noexcept;
  // Once lifeline_ended(): whether the peer broke the protocol.
  bool peer_spoke() const noexcept;
  static constexpr const char* kPeerSpoke =
      "sent bytes on the TCP connection beside, where leat sends none";

  const Connection& connection() const { return connection_; }
  const Settings& settings() const { return settings_; }
  // What the waits of that side have learnt.
  SpinBudget& spin_budget(Side side) { return side == Side::kSend ? send_spin_ : receive_spin_; }

  // For a polling caller that found nothing: whether the peer may be gone, checked now and then. If
  // so, look again, as earlier messages still count, and then call check_not_gone(), which throws
  // kPeerDied, or kProtocol if the peer wrote on its lifeline. Receive side.
  bool may_be_gone();
  void check_not_gone(const char* what);
  // Calls `call`; adds the peer, which the transport does not know, to what ends the connection.
  template <typename Call>
  [[gnu::always_inline]] auto ask(const char* what, Call&& call) const;

  // For other views than Channel, in their call `what`. Throws kClosed, kInvalidArgument.
  void check_usable(const char* what, unsigned context) const;
  void check_sending(const char* what = "send", unsigned context = 0) const {
    if (closed() || context >= kContexts || end_said_ || peer_left_) [[unlikely]]
      refuse_sending(what, context);
  }
  void check_open(const char* what) const {
    if (closed()) [[unlikely]]
      throw_closed(what);
  }
  // Waits until `try_once` returns true, within that side's timeout: spins for a while, then arms
  // the transport and sleeps. All waits for one channel go through it. Defined in channel_wait.h.
  template <typename Try>
  void wait(Side side, const char* what, Try&& try_once);

  // Receive side: called when a message that must be released is destroyed. May destroy the core.
  void release(Delivery& delivery) noexcept;
  // Called when the channel is destroyed.
  static void orphan(ChannelCore* core) noexcept;

 private:
  friend class AnyWaiter;
  friend class Lingerer;
  friend class PollerCore;
  class Sending;
  class Waiter;

  bool closed() const { return closed_.load(std::memory_order_relaxed) || !made_here_; }
  // Refuses a second thread on a side where one waits; both would wait for ever.
  void check_alone(Side side) const {
    if (waiting_sides_.has(side)) [[unlikely]]
      refuse_second(side);
  }
  void begin_wait(Side side) {
    if (waiting_sides_.begin(side)) refuse_second(side);
  }
  void refuse_second(Side side) const;
  [[noreturn]] void throw_closed(const char* what) const;
  // Called while `error` is being handled.
  [[noreturn]] void rethrow(const char* what, const Error& error) const;
  [[noreturn]] void throw_gone(const char* what) const;
  void say_closed() noexcept;
  void wait_for_sender() noexcept;
  void abandon_send(unsigned context) noexcept;
  void wait_for_flush();
  void refuse_sending(const char* what, unsigned context) const;
  [[gnu::noinline]] void look_after_peer();
  void count_sent(std::size_t bytes);
  void count_received(std::size_t bytes);
  ReceiveResult look(unsigned context, Delivery& delivery);
  [[gnu::noinline]] ReceiveResult wait_to_receive(unsigned context, Message& message);
  [[gnu::noinline]] void wait_to_send(std::span<const std::byte> message, unsigned context);
  ReceiveResult prepare_poll(unsigned context, Delivery& delivery);
  void poll_on_stream(short events);
  ReceiveResult receive_the_rest(unsigned context, Delivery& delivery);
  void adopt(Message& message);
  // Returns whether the lifeline may have ended.
  bool sleep(Side side, Deadline deadline, std::chrono::microseconds& nap);
  Outlook::Found found_since_last_sleep();
  bool takes_nap(const Outlook::Found& found);
  void nap_briefly();
  int lifeline_fd(Side side) const;
  std::string where() const;

  const MadeHere made_here_;
  const Settings settings_;
  Connection connection_;
  Transport& transport_;
  std::atomic<bool> peer_gone_ = false;  // a receiver has seen the lifeline end
  const bool watches_lifeline_;          // unless the transport does

  const Fd closing_;  // readable once closed_ is set: wakes sleepers
  std::atomic<bool> closed_{false};
  std::atomic<bool> close_begun_{false};
  bool end_said_ = false;             // send side
  bool peer_left_ = false;            // send side: the lifeline had ended at the last look
  long looked_after_peer_ = 0;        // send side: the time of that look, by the coarse clock
  unsigned sends_unlooked_ = 0;       // send side: messages until that clock is read again
  unsigned most_unlooked_ = 0;        // send side: where that began; grows while the clock stands
  UnfinishedSends unfinished_;        // send side
  std::optional<unsigned> reserved_;  // send side: the context of a reservation
  WaitingSides waiting_sides_;
  Watched watched_;  // by a poller
  std::chrono::milliseconds send_timeout_;
  std::chrono::milliseconds receive_timeout_;

  // receive side
  std::size_t messages_out_ = 0;
  SpinBudget receive_spin_;
  unsigned fruitless_looks_ = 0;
  Deadline next_lifeline_look_{};
  Outlook::Found found_by_looking_;  // at its last sleep
  unsigned naps_left_ = 0;
  std::chrono::microseconds nap_{0};  // length of the next nap
  bool orphaned_ = false;
  Fd poll_fd_;                  // for fd(); made by its first call
  short polled_on_stream_ = 0;  // its events of the stream
  Fd kick_;                     // makes it readable by hand
  bool kicked_ = false;

  alignas(64) std::atomic<bool> sending_{false};
  SpinBudget send_spin_;
  Counter sent_bytes_;
  Counter sent_messages_;
  Counter rounds_;
  Counter flushes_;
  Counter send_sleeps_;
  alignas(64) Counter received_bytes_;
  Counter received_messages_;
  Counter receive_sleeps_;
  // Set by the receiving thread, cleared by the sending one; for rounds_.
  std::atomic<bool> received_last_{false};
};

}  // namespace leat::detail
