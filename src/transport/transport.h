// A transport moves messages, in order per protocol context, over one connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "leat/stats.h"
#include "proto/context.h"
#include "verbs/device.h"

namespace leat::detail {

class RemoteReads;

// A message handed out by Transport::try_receive. Its bytes are where the device put them; or in
// `small`, a copy, for one of a few dozen bytes; or in `heap`, which `data` then points to.
struct Delivery {
  static constexpr std::size_t kSmallBytes = 48;

  const std::byte* data = nullptr;  // null: the bytes are in `small`
  std::size_t bytes = 0;
  std::uint64_t ticket = 0;  // the transport's own, for release
  Context context = 0;
  bool must_release = false;  // else nothing of the transport is held
  std::unique_ptr<std::byte[]> heap;
  alignas(16) std::array<std::byte, kSmallBytes> small;
};

enum class ReceiveResult {
  kMessage,
  kNothing,  // would block
  kEnd,      // the peer ended its side and everything it sent in this context was handed out
};

// No call blocks; blocking, deadlines and waiting are the channel's. Would-block is a value.
// Every call may throw leat::Error: kPeerDied, kProtocol if the peer broke the rules, kSystem; the
// transport is then dead, says the same at each later call, and hands out nothing half done.
// Threads: as for QueuePair, one thread on the send side, one on the receive side (which includes
// release), at the same time.
class Transport {
 public:
  virtual ~Transport() = default;

  // --- beginning
  // What the peer must know, for its start(); at most kMaxSetupBytes.
  virtual std::vector<std::byte> setup() const = 0;
  // Takes the peer's setup(), which may be anything; once, before all that follows. Throws
  // kProtocol.
  virtual void start(std::span<const std::byte> peer_setup) = 0;

  // --- send side
  // True: the message is accepted, the caller may reuse its memory. False: no room. For a message
  // larger than `max_in_place_bytes` (transport chunked: kLeastChunkBytes) some pieces may be on
  // their way already: call again with the same message until true; other contexts may be used in
  // between. Throws kTooLarge above max_message_bytes.
  virtual bool try_send(std::span<const std::byte> message, Context context) = 0;
  // Whether the last try_send took part of a large message though it returned false.
  virtual bool took_part() const { return false; }
  // Whether there will be more room for the rest soon, so that to spin is worth while.
  virtual bool room_soon() const { return took_part(); }
  // Room for a message of exactly `bytes`, at most max_in_place_bytes, to be filled by the caller
  // before commit; data() is null if there is no room now. One reservation at a time. abandon gives
  // an uncommitted one back.
  virtual std::span<std::byte> try_reserve(std::size_t bytes, Context context) = 0;
  // Sends the first `bytes` (at most what was reserved). False: would block, call again.
  virtual bool try_commit(std::size_t bytes) = 0;
  virtual void abandon() = 0;
  // Says the peer that nothing more comes. True once that is accepted.
  virtual bool try_end() = 0;
  // True once everything accepted is in the peer's memory (tcp: in the kernel's hands).
  virtual bool try_flush() = 0;
  // True once the connection can be dropped without losing anything accepted. Poll it.
  virtual bool try_drain() = 0;

  // --- receive side
  // kMessage fills `delivery`. The bytes stay until release.
  virtual ReceiveResult try_receive(Context context, Delivery& delivery) = 0;
  // Whether messages of any context wait here, taken off the device already, or may come without an
  // event. Receive side.
  virtual bool pending() const = 0;
  // Gives back a delivery that says must_release. Any order. Never throws: a failure shows at the
  // next call.
  virtual void release(Delivery& delivery) noexcept = 0;

  // Whether it replaces what has failed underneath. Until it is over, which an event tells, calls
  // say that they would block, although messages may wait here; a peer that has gone ends it soon.
  // Any thread.
  virtual bool resuming() const { return false; }

  // Null: no reads of the peer's memory go beside this transport's messages.
  virtual RemoteReads* remote_reads() { return nullptr; }

  // --- waiting: as in QueuePair
  virtual void arm(Side side) = 0;
  virtual int event_fd(Side side) const = 0;
  // How what is waited for comes: with an event; with one once there is much of it, so that to look
  // now and then is only for what is little; or without (a counter written by the peer), so sleep
  // only for short whiles and look again.
  enum class Comes { kWithEvent, kMuchWithEvent, kSilently };
  // Room, for a sender that is blocked.
  virtual Comes room_comes() const = 0;
  // Something that the peer must get before it goes on found no room in the send queue, or a
  // message may come without an event: a receiver too sleeps only for short whiles and looks again.
  // Receive side.
  virtual bool receiving_waits_for_room() const { return false; }
  // Who receives is about to sleep. What it ever found by looking, without an event: if there was
  // much since the last time, then what comes next too is had more cheaply by another look after a
  // short while than by arm() and an event. Receive side.
  struct Found {
    std::uint64_t messages = 0;
    std::uint64_t eighths = 0;  // of all room for messages, which they took
  };
  virtual Found found_by_looking() const { return {}; }

  virtual std::size_t max_in_place_bytes(Context context) const = 0;
  virtual std::size_t max_message_bytes() const = 0;

  // "ring on shm", with addresses; for logs and errors.
  virtual std::string describe() const = 0;
  // Adds what only the transport counts (credit waits, inline sends, RNR retries).
  virtual void add_stats(Stats& stats) const = 0;
};

}  // namespace leat::detail
