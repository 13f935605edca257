// A transport moves messages, in order per protocol context, over one connection.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "leat/delivery.h"
#include "leat/stats.h"
#include "transport/context.h"
#include "verbs/device.h"

namespace leat::detail {

class AttestedTransport;
class PlannedTransport;
class RemoteReads;

// The longest Transport::setup().
inline constexpr std::size_t kMaxSetupBytes = 1024;

enum class SendResult {
  kSent,    // accepted: the caller may reuse its memory
  kNoRoom,  // would block; nothing has left
  // Would block, and a part has left: that message is under way in its context. Call again with the
  // same message, or abandon(); other contexts may be used in between.
  kUnderWay,
};

enum class ReceiveResult {
  kMessage,
  kNothing,  // would block
  kEnd,      // the peer ended its side and everything it sent in this context was handed out
};

// What a transport does with the TCP connection beside it.
enum class StreamUse {
  kLifeline,  // nothing: a byte there breaks the protocol, its end is the peer's death
  kResuming,  // looks after what comes there itself, to replace what has failed underneath
  // Its messages are the bytes there. It notices the end by itself; what the kernel has not taken
  // yet goes by later calls.
  kMessages,
};

// What a transport is; the same from start() on.
struct Facts {
  std::size_t max_message_bytes = 0;
  // Of context 0 and of each other one: what can be reserved, and up to which size a message goes
  // whole or not at all, so that it is never under way (unless takes_back is false).
  std::array<std::size_t, 2> max_in_place_bytes{};
  std::array<std::size_t, 2> max_at_once_bytes{};
  StreamUse stream = StreamUse::kLifeline;
  bool reserves_room = false;     // what try_reserve gives is room at the peer
  bool takes_back = true;         // abandon() takes back any message that is under way
  bool leaves_by_itself = false;  // what was accepted reaches the peer without another call
  // Readable when it may be worth while to look again, after arm(); as in QueuePair.
  int send_event_fd = -1;
  int receive_event_fd = -1;
  // An event stays until a look finds what it announces: then a waiter need not look again between
  // arm() and sleep.
  bool events_stay = false;
  // Set while it replaces what has failed underneath; null: it never does. Until that is over,
  // which an event announces, calls say that they would block, although messages may wait here; a
  // peer that has gone ends it soon. Acquire: a thread that sees the end of it sees what it left.
  const std::atomic<bool>* resuming = nullptr;
  // The same while leat-attestd verifies what has arrived; its answer or patience ends it.
  const std::atomic<bool>* checking = nullptr;
  // What goes beside messages; null: nothing of that kind.
  RemoteReads* reads = nullptr;
  PlannedTransport* arrays = nullptr;
  AttestedTransport* records = nullptr;
};

inline bool is_set(const std::atomic<bool>* f) { return f && f->load(std::memory_order_acquire); }
constexpr bool sent(SendResult result) { return result == SendResult::kSent; }
constexpr SendResult whole_or_not(bool sent) {
  return sent ? SendResult::kSent : SendResult::kNoRoom;
}

enum class Look { kBrief, kThorough };  // brief: costs next to nothing; thorough: asks each context

// What a waiter should know before it waits on a side.
struct Outlook {
  // How it learns of what it waits for. kWithEvent: always by an event. kMuchWithEvent: by an
  // event once there is much; the waiter must look now and then for less. kSilently: without an
  // event, because it is a counter that the peer writes, or because the send queue had no room for
  // something that the peer needs before it goes on; the waiter must sleep only for short whiles,
  // and look again after each.
  enum class Comes { kWithEvent, kMuchWithEvent, kSilently };
  Comes comes = Comes::kWithEvent;
  // Send side: the message that the last try_send has begun will soon find more room, so spinning
  // pays, or has it. Transport tcp leaves it false: the kernel's event is soon enough.
  // Receive side, after a thorough look: messages of some context wait here, taken off the device
  // already, or may arrive without an event.
  bool soon = false;
  // StreamUse::kMessages: the events of the stream, as of poll(2), for which this side waits too.
  short stream_events = 0;
  // Receive side: what looks have ever found without an event. If many messages were found since
  // the waiter's last sleep, looking again after a short nap is cheaper than arming an event.
  struct Found {
    std::uint64_t messages = 0;
    std::uint64_t eighths = 0;  // of all room for messages, which they took
  };
  Found found;
};

// After start() no call blocks; blocking, deadlines and waiting are the channel's. Would-block is
// a value, also while leat-attestd is asked for what attested+X sends or receives. Every call may
// throw leat::Error: kPeerDied, kProtocol if the peer broke the rules, kSystem, kUnavailable if
// leat-attestd does not answer; the transport is then dead, says the same at each later call, and
// hands out nothing half done. Threads: as for QueuePair, one thread on the send side, one on the
// receive side (which includes release), at the same time.
class Transport {
 public:
  virtual ~Transport() = default;

  // --- beginning
  // What the peer must know, for its start(); at most kMaxSetupBytes, or the handshake gives the
  // transport up.
  virtual std::vector<std::byte> setup() const = 0;
  // Takes the peer's setup(), which may be anything; once, before all that follows. Throws
  // kProtocol.
  virtual void start(std::span<const std::byte> peer_setup) = 0;

  // --- send side
  // Throws kTooLarge above max_message_bytes.
  virtual SendResult try_send(std::span<const std::byte> message, Context context) = 0;
  // Room for a message of exactly `bytes`, at most max_in_place_bytes, to be filled by the caller
  // before commit; data() is null if there is no room now. One reservation at a time.
  virtual std::span<std::byte> try_reserve(std::size_t bytes, Context context) = 0;
  // Sends the first `bytes` (at most what was reserved).
  virtual SendResult try_commit(std::size_t bytes) = 0;
  // Gives up what that context has begun, if anything: a reservation, or the message that is under
  // way. Before the context's next message, or the end, the transport tells the peer to drop the
  // part that it has. A transport that cannot take a message back (decorators) refuses by
  // kInvalidArgument every other message of the context.
  virtual void abandon(Context context) noexcept = 0;
  // Tells the peer that nothing more comes; the peer drops its part of a message that is under way.
  // True once that is accepted; false: would block, call again.
  virtual bool try_end() = 0;
  // True once everything accepted is in the peer's memory (StreamUse::kMessages: in the kernel's
  // hands).
  virtual bool try_flush() = 0;

  // --- receive side
  // kMessage fills `delivery`. The bytes stay until release.
  virtual ReceiveResult try_receive(Context context, Delivery& delivery) = 0;
  // Gives back a delivery that says must_release. Any order. A failure shows at the next call.
  virtual void release(Delivery& delivery) noexcept = 0;

  // --- waiting
  // As in QueuePair.
  virtual void arm(Side side) = 0;
  // Called by that side's thread.
  virtual Outlook outlook(Side side, Look look) const = 0;

  const Facts& facts() const { return facts_; }
  std::size_t max_in_place_bytes(Context context) const {
    return facts_.max_in_place_bytes[context != 0];
  }
  std::size_t max_at_once_bytes(Context context) const {
    return facts_.max_at_once_bytes[context != 0];
  }
  std::size_t max_message_bytes() const { return facts_.max_message_bytes; }
  int event_fd(Side side) const {
    return side == Side::kSend ? facts_.send_event_fd : facts_.receive_event_fd;
  }
  // Any thread. Whether calls say that they would block, although messages may wait here.
  bool resuming() const { return is_set(facts_.resuming); }
  bool checking() const { return is_set(facts_.checking); }

  // "ring on shm", with addresses; for logs and errors.
  virtual std::string describe() const = 0;
  // Adds what only the transport counts (credit waits, inline sends, RNR retries).
  virtual void add_stats(Stats& stats) const = 0;

 protected:
  Transport() = default;
  explicit Transport(std::size_t max_message_bytes) {
    facts_.max_message_bytes = max_message_bytes;
  }
  void agree_with(std::uint64_t peers_max_message_bytes) {  // the smaller of both limits holds
    facts_.max_message_bytes =
        std::min<std::uint64_t>(facts_.max_message_bytes, peers_max_message_bytes);
  }
  // What goes in place goes at once, unless a transport says otherwise afterwards.
  void set_in_place(std::size_t of_context0, std::size_t of_others) {
    facts_.max_in_place_bytes = {std::min(of_context0, max_message_bytes()),
                                 std::min(of_others, max_message_bytes())};
    facts_.max_at_once_bytes = facts_.max_in_place_bytes;
  }

  void set_event_fds(const QueuePair& queue_pair) {
    facts_.send_event_fd = queue_pair.event_fd(Side::kSend);
    facts_.receive_event_fd = queue_pair.event_fd(Side::kReceive);
  }

  Facts facts_;
};

}  // namespace leat::detail
