// The planned transport (CORA §3.3, §4): the ring transport, and beside its rings a region whose
// use both sides have planned. A message of an array goes by one write-with-immediate to the place
// that its index says, and the immediate says the message's number; neighbours go together.
//
// Nobody writes into memory that is still in use: a side tells its peer each open of an array, by
// a word that it writes into the peer's memory, and the peer sends only into open arrays.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/counter.h"
#include "base/large_copy.h"
#include "transport/planned/message_arrays.h"
#include "transport/ring/ring.h"

namespace leat::detail {

struct PlannedOptions {
  std::size_t region_bytes = 0;  // 0: by device
  std::string plan_digest;       // hexadecimal, up to 64 digits
};

// Threads: as RingTransport, as long as no array was opened; from then on one thread at a time.
class PlannedTransport final : public RingTransport {
 public:
  static constexpr const char* kWhenEmpty = "this channel of message arrays was moved from";
  // Throws kResource.
  PlannedTransport(std::unique_ptr<Device> device, std::unique_ptr<QueuePair> queue_pair,
                   const RingOptions& ring_options, const PlannedOptions& options);
  static MakeTransport make;

  std::vector<std::byte> setup() const override;
  // Throws kProtocol; kInvalidArgument if the sides' regions or plans differ.
  void start(std::span<const std::byte> peer_setup) override;

  // --- arrays; kInvalidArgument, with nothing done, for what contradicts the open ones
  const MessageArrays& arrays() const { return arrays_; }
  std::uint64_t max_array_message_bytes() const { return limits().max_request_bytes; }
  void open(unsigned context, const MessageArray& array);
  // Tells the peer that the array is open, once, and wakes it if it sleeps until then and the
  // device can do so. False: would block, call again.
  bool try_tell(unsigned context);
  // Takes an open() back that the peer was not told of.
  void cancel(unsigned context) { arrays_.cancel(context); }
  void close(unsigned context) { arrays_.close(context); }

  // --- sending
  // Whether the peer has opened the array. Throws kProtocol if it is beyond it.
  bool peer_is_open(unsigned context) {
    return arrays_.peer_is_open(context) || look_at_peer(context);
  }
  // Where the bytes of messages to send are to be put, before try_append: the peer's own memory if
  // the device can store there. Requires peer_is_open().
  std::span<std::byte> outgoing(unsigned context, std::uint64_t index, std::uint64_t count) {
    return {outgoing_ + arrays_.place(context, index, count),
            arrays_.array(context).message_bytes * count};
  }
  // Copies bytes to outgoing().
  void fill(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (direct_ && bytes >= LargeCopy::kLeastBytes)
      large_copy_.copy(to, from, bytes);
    else
      std::memcpy(to, from, bytes);
  }
  // Posts what is pending unless these messages, at most batch_limit(), continue it: try_append
  // then succeeds. False: would block, call again; for callers with many bytes to copy before.
  bool try_make_way(unsigned context, std::uint64_t index, std::uint64_t count) {
    const bool continues =
        batch_.context == context && batch_.index + batch_.count == index &&
        (batch_.count + count) * arrays_.array(context).message_bytes <= batch_bytes_;
    return batch_.count == 0 || continues || post_batch();
  }
  // How many messages of that array go into one write at most.
  std::uint64_t batch_limit(unsigned context) const;
  // Sends messages, at most batch_limit(), whose bytes are at outgoing(): posts what is pending if
  // they do not continue it, then they are pending. False: would block, call again.
  bool try_append(unsigned context, std::uint64_t index, std::uint64_t count);
  // Posts what is pending. False: would block, call again.
  bool try_post() { return batch_.count == 0 || post_batch(); }

  // --- receiving
  // Where the bytes of messages are or will be.
  std::span<const std::byte> incoming(unsigned context, std::uint64_t index,
                                      std::uint64_t count) const {
    return {incoming_ + arrays_.place(context, index, count),
            arrays_.array(context).message_bytes * count};
  }
  // Takes in what the device has. False: it has nothing now.
  bool try_progress() {
    return take_arrivals(
        [this](std::uint32_t number, std::size_t bytes) { take_in(number, bytes); });
  }
  // Nothing is here of what is waited for. Throws kPeerDied if nothing more can come.
  void check_not_ended() const {
    if (peer_ended()) [[unlikely]]
      throw_ended();
  }

  // --- Transport: what is pending goes first.
  SendResult try_send(std::span<const std::byte> message, Context context) override {
    return try_post() ? RingTransport::try_send(message, context) : unsent(context);
  }
  std::span<std::byte> try_reserve(std::size_t bytes, Context context) override {
    return try_post() ? RingTransport::try_reserve(bytes, context) : std::span<std::byte>();
  }
  SendResult try_commit(std::size_t bytes) override {
    return try_post() ? RingTransport::try_commit(bytes) : SendResult::kNoRoom;
  }
  bool try_end() override { return try_post() && RingTransport::try_end(); }
  bool try_flush() override { return try_post() && RingTransport::try_flush(); }
  ReceiveResult try_receive(Context context, Delivery& delivery) override {
    try_post();
    return RingTransport::try_receive(context, delivery);
  }
  Outlook outlook(Side side, Look look) const override {
    Outlook outlook = RingTransport::outlook(side, look);
    if (batch_.count != 0) outlook.comes = Outlook::Comes::kSilently;
    return outlook;
  }
  std::string describe() const override;
  void add_stats(Stats& stats) const override;

 private:
  struct Batch {
    unsigned context = 0;
    std::uint64_t index = 0;
    std::uint64_t count = 0;  // 0: nothing is pending
  };

  bool post_batch();
  [[noreturn]] void throw_ended() const;
  bool look_at_peer(unsigned context);
  void take_in(std::uint32_t number, std::size_t bytes) {
    std::uint64_t messages = 0;
    if (const char* why = arrays_.arrive(number, bytes, messages)) [[unlikely]]
      refuse(number, bytes, why);
    received_bytes_.add(bytes);
    received_messages_.add(messages);
    received_last_ = true;
  }
  void arrived_by_number(std::uint32_t number, std::size_t bytes) override {
    take_in(number, bytes);
  }
  [[noreturn]] void refuse(std::uint32_t number, std::size_t bytes, const char* why);

  // --- set once
  std::unique_ptr<MemoryRegion> region_;   // the planned region, then the words the peer writes
  std::unique_ptr<MemoryRegion> staging_;  // mirrors the peer's; null if all sends are inlined
  const std::string plan_digest_;
  RemoteRegion peer_region_;
  const std::uint64_t batch_bytes_;      // a write of more than one message has at most
  bool direct_ = false;                  // outgoing_ is the peer's memory
  std::byte* outgoing_ = nullptr;        // the peer's region or staging_; null: it went already
  const std::byte* incoming_ = nullptr;  // region_

  MessageArrays arrays_;
  Batch batch_;
  LargeCopy large_copy_;
  bool received_last_ = false;  // for rounds_

  // --- statistics, of messages in arrays
  Counter sent_bytes_;
  Counter sent_messages_;
  Counter writes_;
  Counter rounds_;
  Counter received_bytes_;
  Counter received_messages_;
};

inline bool PlannedTransport::try_append(unsigned context, std::uint64_t index,
                                         std::uint64_t count) {
  if (!try_make_way(context, index, count)) return false;
  const std::uint64_t each = arrays_.array(context).message_bytes;
  if (batch_.count != 0) {
    batch_.count += count;
  } else {
    batch_ = {context, index, count};
  }
  // Full: on its way at once. If that would block, the next call tries again.
  if ((batch_.count + 1) * each > batch_bytes_) post_batch();
  return true;
}

}  // namespace leat::detail
