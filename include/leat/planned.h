// Message arrays whose place in memory both sides know before the first byte moves (CORA, USENIX
// Security 2024, section 3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "leat/channel.h"
#include "leat/export.h"
#include "leat/held.h"
#include "leat/message_array.h"

namespace leat {

namespace detail {
class PlannedTransport;
}  // namespace detail

// A channel of transport "planned", with message arrays beside its ordinary messages. Both sides
// open the same arrays (only `incoming` may differ) in the same contexts; the n-th open of a
// context on one side belongs to the n-th open of that context on the other. Each of up to
// kArrayContexts open arrays has a context of its own. Ordinary messages have contexts apart from
// these, numbered from 0 as well.
//
// Memory: each side has a region of `planned_bytes`, in which the peer's messages arrive. An array
// occupies its part of the region from open to close, and arrays that are open at the same time
// must not overlap. close() waits for all incoming messages, and the peer sends only into an open
// array; so memory may be planned again as soon as its array is closed, however far behind the peer
// is.
//
// Sends of adjacent bytes are merged into one write. Pending bytes are posted when a send does not
// continue them, when they have become many, before every wait, and by every other call that sends,
// receives, flushes or closes, here or on channel(). A send that waits takes in what arrives
// meanwhile, so both sides may send any amount before they receive.
//
// Owner: the caller that constructed it; move-only. Threads: one at a time, calls on channel()
// included; use one connection for each thread. The destructor closes the channel.
// Errors: leat::Error. kInvalidArgument if a call contradicts the open arrays: nothing was done,
// and the channel remains usable. kProtocol if the peer contradicts them (it sent an index twice or
// outside an open array): the connection is dead. kPeerDied once the peer has vanished, or has
// ended and cannot send what the caller waits for; kTimeout when a call has blocked for the option
// `timeout`; kClosed after channel().close().
class LEAT_EXPORT PlannedChannel {
 public:
  // Takes over a channel that was made with transport=planned on both sides. (If their
  // `planned_digest` or `planned_bytes` differ, Channel::connect has thrown an error with both
  // values; the listener logs the same and goes on listening.) Throws kInvalidArgument for a
  // channel of another transport, sealed+planned included: arrays would go in clear beside it.
  explicit PlannedChannel(Channel channel);
  PlannedChannel(PlannedChannel&&) noexcept = default;
  PlannedChannel& operator=(PlannedChannel&&) noexcept = default;
  ~PlannedChannel() = default;

  // Opens `array` and tells the peer that it may send into it; none of its messages has arrived
  // yet. Throws kInvalidArgument, naming both sides of the conflict, if the context is in use, if
  // the array overlaps an open one, if it does not fit into the region, or if no range of
  // numbers is free for its messages (MessageArray::kCountedIn). After any other error
  // but kTimeout the channel is dead; after kTimeout nothing was opened.
  void open(unsigned context, const MessageArray& array);
  // Waits for all incoming messages, then frees memory and context: the peer cannot write there any
  // more. Views of the array's messages become invalid.
  void close(unsigned context);
  bool is_open(unsigned context) const;

  // Sends adjacent messages, the first with `index`; bytes.size() is a positive multiple of the
  // array's message_bytes. Each index may be sent once per open, in any order. Blocks until the
  // peer has opened the array, and while too much is in flight. On return the caller may reuse the
  // bytes. After kTimeout some of several messages may have been sent, each whole, the first ones
  // first; use try_send() to know how many.
  void send(unsigned context, std::uint64_t index, std::span<const std::byte> bytes);
  // The same without blocking. Returns how many of the messages it sent; call again for the rest.
  [[nodiscard]] std::uint64_t try_send(unsigned context, std::uint64_t index,
                                       std::span<const std::byte> bytes);
  // Returns memory for `count` messages, the first with `index`. The caller fills it and sends it
  // with commit(). On shm this is the peer's own memory. Blocks until the peer has opened the
  // array. One reservation at a time: another reserve() drops one that was not committed.
  [[nodiscard]] std::span<std::byte> reserve(unsigned context, std::uint64_t index,
                                             std::uint64_t count = 1);
  void commit();
  // The same without blocking. try_reserve: data() is null if the peer has not opened the array.
  // try_commit: false if part of the reservation is still to be sent; then call it again.
  [[nodiscard]] std::span<std::byte> try_reserve(unsigned context, std::uint64_t index,
                                                 std::uint64_t count = 1);
  [[nodiscard]] bool try_commit();
  // Posts pending bytes, without waiting for their arrival; channel().flush() waits for that.
  void flush();
  // The same without blocking. Returns true once nothing is pending.
  [[nodiscard]] bool try_flush();

  // Returns the bytes of `count` adjacent messages, the first with `index`, where RDMA put them;
  // blocks until all have arrived. The caller may receive in any order, any part any number of
  // times, however the sender divided them. The view is valid until close(context).
  [[nodiscard]] std::span<const std::byte> receive(unsigned context, std::uint64_t index,
                                                   std::uint64_t count = 1);
  // The same without blocking: data() is null unless all of them have arrived.
  [[nodiscard]] std::span<const std::byte> try_receive(unsigned context, std::uint64_t index,
                                                       std::uint64_t count = 1);

  // How many incoming messages have not arrived yet. Every receiving call takes in arrivals.
  std::uint64_t missing(unsigned context) const;

  // The size of the planned region.
  std::uint64_t region_bytes() const;
  // The most bytes that one message of an array may have: what the device moves in one write.
  std::uint64_t max_message_bytes() const;

  // The channel, for ordinary messages, stats and close.
  Channel& channel() { return channel_; }
  const Channel& channel() const { return channel_; }

 private:
  struct Reservation {
    unsigned context = 0;
    std::uint64_t index = 0;
    std::uint64_t count = 0;  // 0: none
  };

  Channel channel_;
  detail::Held<detail::PlannedTransport*> transport_;  // belongs to channel_
  Reservation reserved_;
};

}  // namespace leat
