// Messages in arrays whose place in memory both sides know before the first byte moves (CORA §3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "leat/channel.h"
#include "leat/export.h"
#include "leat/message_array.h"

namespace leat {

namespace detail {
class PlannedTransport;
}  // namespace detail

// A channel of transport "planned" and the message arrays beside its ordinary messages. Both sides
// open the same arrays (`incoming` apart) in the same contexts, each context equally often; the
// n-th open of a context on one side belongs to the n-th on the other. Each of up to 16 live arrays
// has a protocol context of its own; ordinary messages may use the same numbers.
//
// Memory: each side has a region of `planned_bytes`, where the peer's messages land. An array's
// part of it is in use from open to close, and arrays that are live at the same time must not
// overlap. close() waits for all that is to come, and a peer sends only into an array that is open:
// memory may be planned again as soon as its array is closed, however far behind the peer is.
//
// Sent bytes that continue each other are merged into one write. What is pending goes on its way
// when a send does not continue it, when it has grown large, and at every other call that sends,
// receives, flushes or closes, here or of channel(), and before anything waits. A send that must
// wait takes in what arrives meanwhile, so two sides may send any amount before they receive.
//
// Owner: whoever constructed it; move-only. Threads: one thread at a time, channel() included; use
// one connection per thread. The destructor closes the channel.
// Errors: leat::Error. kInvalidArgument if the call contradicts the open arrays; nothing was done,
// go on. kProtocol if the peer did (a message that came before, or outside an open array): the
// connection is dead. kPeerDied once the peer vanished, or ended and will not send what is waited
// for; kTimeout at the `timeout` option; kClosed after channel().close().
class LEAT_EXPORT PlannedChannel {
 public:
  // Takes a channel made with transport=planned on both sides. If the sides' `plan_digest` or
  // `planned_bytes` differ, Channel::connect throws with both; the listening side logs the same and
  // goes on listening. Throws kInvalidArgument for a channel of another transport.
  explicit PlannedChannel(Channel channel);
  PlannedChannel(PlannedChannel&&) noexcept = default;
  PlannedChannel& operator=(PlannedChannel&&) noexcept = default;
  ~PlannedChannel() = default;

  // Makes `array` live and tells the peer that it may send into it. Nothing of it has arrived yet.
  // Throws kInvalidArgument for a live context, an overlap with a live array (both are named), or
  // what does not fit into the region.
  void open(unsigned context, const MessageArray& array);
  // Waits until all incoming messages are here, then gives memory and context back: the peer cannot
  // write there any more. Views of its messages end.
  void close(unsigned context);
  bool is_open(unsigned context) const;

  // Sends neighbouring messages, from `index` on: bytes.size() is a multiple of the array's
  // message_bytes, not 0. Each index once per open, in any order. Blocks until the peer has opened
  // the array, and while too much is on its way. The bytes are the caller's again on return.
  void send(unsigned context, std::uint64_t index, std::span<const std::byte> bytes);
  // The same without blocking: returns how many of the messages it took. Go on with the others.
  [[nodiscard]] std::uint64_t try_send(unsigned context, std::uint64_t index,
                                       std::span<const std::byte> bytes);
  // Memory for `count` messages from `index` on, to be filled by the caller and sent by commit():
  // on shm it is the peer's own memory. Blocks until the peer has opened the array. One reservation
  // at a time; another reserve() drops one that was not committed.
  [[nodiscard]] std::span<std::byte> reserve(unsigned context, std::uint64_t index,
                                             std::uint64_t count = 1);
  void commit();
  // The same without blocking: data() is null if the peer has not opened the array, or false if not
  // all of the reservation is on its way; then call again.
  [[nodiscard]] std::span<std::byte> try_reserve(unsigned context, std::uint64_t index,
                                                 std::uint64_t count = 1);
  [[nodiscard]] bool try_commit();
  // Posts what is pending, without waiting for its arrival; channel().flush() does wait.
  void flush();
  // The same without blocking: true once nothing is pending.
  [[nodiscard]] bool try_flush();

  // The bytes of `count` neighbouring messages from `index` on, where RDMA put them; blocks until
  // all of them are here. Any order, as often as wanted, however the sender cut them. Valid until
  // close(context).
  [[nodiscard]] std::span<const std::byte> receive(unsigned context, std::uint64_t index,
                                                   std::uint64_t count = 1);
  // The same without blocking: data() is null if not all of them are here.
  [[nodiscard]] std::span<const std::byte> try_receive(unsigned context, std::uint64_t index,
                                                       std::uint64_t count = 1);

  // How many incoming messages are still to come. Any receiving call takes them in.
  std::uint64_t missing(unsigned context) const;

  // Of the planned region.
  std::uint64_t region_bytes() const;

  // For ordinary messages, stats, close.
  Channel& channel() { return channel_; }
  const Channel& channel() const { return channel_; }

 private:
  struct Reservation {
    unsigned context = 0;
    std::uint64_t index = 0;
    std::uint64_t count = 0;  // 0: none
  };

  Channel channel_;
  detail::PlannedTransport* transport_ = nullptr;  // channel_'s
  Reservation reserved_;
};

}  // namespace leat
