// One party's connection with another, over any carrier.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "leat/channel.h"
#include "leat/message_array.h"
#include "leat/scml/party.h"

namespace leat::scml::detail {

// Precedes or follows the messages of an array on carriers without planned messages. In context 0,
// with every carrier, it tells that the peer waits in its n-th barrier.
struct LinkHeader {
  std::uint64_t index = 0;  // of the first message, or n
  std::uint32_t epoch = 0;  // how often the context had been opened
  std::uint32_t context = 0;
};
static_assert(sizeof(LinkHeader) == 16);

// No call blocks. Errors are the channel's, kInvalidArgument for a call that contradicts the open
// arrays, and kProtocol if the peer contradicts them. One thread.
class Link {
 public:
  virtual ~Link() = default;

  virtual Channel& channel() = 0;

  // The most bytes that one message may have.
  virtual std::uint64_t max_message_bytes() = 0;
  // Opens the array in this side's memory; the peer does the same. `array.incoming` must be a
  // number.
  virtual void open(unsigned context, const leat::MessageArray& array) = 0;
  // Requires missing() == 0.
  virtual void close(unsigned context) = 0;
  // How many incoming messages have not arrived yet.
  virtual std::uint64_t missing(unsigned context) const = 0;

  // Returns how many of the messages it took. Call again with the rest before any other send.
  virtual std::uint64_t try_send(unsigned context, std::uint64_t index,
                                 std::span<const std::byte> bytes) = 0;
  // data() is null if there is no room now.
  virtual std::span<std::byte> try_reserve(unsigned context, std::uint64_t index,
                                           std::uint64_t count) = 0;
  virtual bool try_commit() = 0;
  // Whether all of these messages have arrived.
  virtual bool arrived(unsigned context, std::uint64_t index, std::uint64_t count) = 0;
  // Their bytes, valid until close(). Requires arrived().
  virtual std::span<const std::byte> view(unsigned context, std::uint64_t index,
                                          std::uint64_t count) = 0;
  // Takes in arrivals, and sends pending messages if there is room.
  virtual void progress() = 0;
  // True once close() need not wait for what was sent.
  virtual bool try_post() = 0;
  // True once everything sent leaves without further calls.
  virtual bool try_flush() = 0;

  // Whether the peer has ended: progress() has then taken in everything that will ever arrive.
  bool ended() const noexcept { return ended_; }

  // Tells the peer that this party waits in its n-th barrier. Returns false if there is no room
  // now.
  bool try_tell_barrier(std::uint64_t n);
  // How many barriers the peer has reported.
  std::uint64_t barriers_heard() const noexcept { return barriers_; }

 protected:
  // Takes in a message of context 0.
  void hear(const Message& message);

  bool ended_ = false;
  std::uint64_t barriers_ = 0;
};

// For a channel of transport planned: a thin layer over leat::PlannedChannel.
std::unique_ptr<Link> make_planned_link(Channel channel);
// For all other channels; `carrier` is not kPlanned. Messages are reassembled in memory of
// `region_bytes`.
std::unique_ptr<Link> make_stream_link(Channel channel, Carrier carrier,
                                       std::uint64_t region_bytes);

}  // namespace leat::scml::detail
