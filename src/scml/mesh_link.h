// One party's connection with one other, whatever carries it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "leat/channel.h"
#include "leat/message_array.h"
#include "leat/scml/party.h"

namespace leat::scml::detail {

// What stands before, or after, the messages of an array on the carriers that move no planned
// messages; and in context 0, with every carrier, the n-th word that the peer waits in a barrier.
struct LinkHeader {
  std::uint64_t index = 0;  // of the first message, or n
  std::uint32_t epoch = 0;  // how often the context had been opened
  std::uint32_t context = 0;
};
static_assert(sizeof(LinkHeader) == 16);

// No call blocks. Errors are the channel's, kInvalidArgument for what contradicts the open arrays,
// and kProtocol if the peer did. One thread.
class Link {
 public:
  virtual ~Link() = default;

  virtual Channel& channel() = 0;

  // Of this side's memory, and what the peer does alike. `array.incoming` is a number.
  virtual void open(unsigned context, const leat::MessageArray& array) = 0;
  // Once missing() is 0.
  virtual void close(unsigned context) = 0;
  // Incoming messages that are still to come.
  virtual std::uint64_t missing(unsigned context) const = 0;

  // How many of the messages were taken. Call again with the others before any other send.
  virtual std::uint64_t try_send(unsigned context, std::uint64_t index,
                                 std::span<const std::byte> bytes) = 0;
  // data() is null: not now.
  virtual std::span<std::byte> try_reserve(unsigned context, std::uint64_t index,
                                           std::uint64_t count) = 0;
  virtual bool try_commit() = 0;
  // Whether all of these messages are here.
  virtual bool arrived(unsigned context, std::uint64_t index, std::uint64_t count) = 0;
  // Their bytes, until close. Requires arrived().
  virtual std::span<const std::byte> view(unsigned context, std::uint64_t index,
                                          std::uint64_t count) = 0;
  // Takes in what has arrived, and sends what is pending if there is room.
  virtual void progress() = 0;
  // True once nothing is pending here.
  virtual bool try_post() = 0;
  // True once all that was sent goes its way by itself.
  virtual bool try_flush() = 0;

  // Whether the peer has said that it ended: progress() took in all that there will ever be.
  bool ended() const noexcept { return ended_; }

  // This party waits in its n-th barrier. False: not now.
  bool try_tell_barrier(std::uint64_t n);
  // How many the peer has told of.
  std::uint64_t barriers_heard() const noexcept { return barriers_; }

 protected:
  // A word of context 0.
  void hear(const Message& message);
  // progress() for context 0, where nothing but words arrives.
  void hear_words();

  bool ended_ = false;
  std::uint64_t barriers_ = 0;
};

// For kPlanned: leat::PlannedChannel does it all.
std::unique_ptr<Link> make_planned_link(Channel channel);
// For the others. Messages are put together in memory of `region_bytes`.
std::unique_ptr<Link> make_stream_link(Channel channel, Carrier carrier,
                                       std::uint64_t region_bytes);

}  // namespace leat::scml::detail
