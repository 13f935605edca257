// The ring transport (CORA §4, §7): each protocol context has a ring in the receiver's memory. A
// message is one write-with-immediate into the next free place; the immediate tells the receiver
// context and place, and it hands out a view: no demultiplexing, no copy.
//
// Two kinds of credit keep the sender from overrunning the receiver, both counters that the
// receiver writes, many messages at a time, into the sender's memory: per context the ring space
// given back, and for the connection the receives posted again (so that "receiver not ready" never
// happens).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/counter.h"
#include "transport/endpoint.h"
#include "transport/parts/reassembly.h"
#include "transport/parts/remote_reads.h"
#include "transport/parts/sends.h"
#include "transport/ring/places.h"

namespace leat::detail {

// Receives are replaced, and the sender told, after this share of them was used.
inline constexpr std::uint64_t kReplaceShare = 4;

struct RingOptions {
  std::size_t ring_bytes = 0;          // context 0; 0: by device
  std::size_t context_ring_bytes = 0;  // each other context; 0: by device
  std::size_t max_message_bytes = 0;
  QueueDepths depths;  // with which the queue pair was made

  static RingOptions of(const Settings& settings, const QueueDepths& depths);
};

class RingTransport : public Transport, private RemoteReads {
 public:
  // Allocates the rings and posts the receives. Throws kResource.
  RingTransport(std::unique_ptr<Device> device, std::unique_ptr<QueuePair> queue_pair,
                const RingOptions& options);
  static MakeTransport make;

  std::vector<std::byte> setup() const override;
  void start(std::span<const std::byte> peer_setup) override;

  SendResult try_send(std::span<const std::byte> message, Context context) override;
  std::span<std::byte> try_reserve(std::size_t bytes, Context context) override;
  SendResult try_commit(std::size_t bytes) override;
  void abandon(Context context) noexcept override;
  bool try_end() override;
  bool try_flush() override;
  ReceiveResult try_receive(Context context, Delivery& delivery) override;
  void release(Delivery& delivery) noexcept override;
  void arm(Side side) override { queue_pair_->arm(side); }
  Outlook outlook(Side side, Look look) const override;
  std::string describe() const override;
  void add_stats(Stats& stats) const override;

 protected:
  // What try_send says while something else must go first.
  SendResult unsent(Context context) const {
    return pieces_[context].under_way() ? SendResult::kUnderWay : SendResult::kNoRoom;
  }
  // For a transport that moves more than rings over the same queue pair. Send side: whether the
  // peer has a receive for one more immediate. Counts, and looks for trouble, if not.
  bool find_credit() {
    return messages_sent_ - messages_taken_ < peer_receive_count_ || look_for_credit();
  }
  // Posts a message with immediate data, after find_credit(). False: would block.
  bool post_request(const SendRequest& request);
  // Receive side. Takes in at most a few arrivals; `by_index` gets those whose place is an index.
  // False: there was nothing; then throws if receiving failed.
  template <typename ByIndex>
  bool take_arrivals(ByIndex&& by_index);
  // The same for those that try_receive takes in. Throws by nonsense().
  virtual void arrived_by_index(Context context, std::uint32_t index, std::size_t bytes);
  bool peer_ended() const { return ended_; }
  [[noreturn]] void nonsense(const std::string& what);
  // Any side: an aligned 8-byte word of the peer's memory. False: no room in the send queue.
  bool write_word(std::uint64_t address, std::uint32_t key, std::uint64_t value) noexcept;

  Device& device() { return *device_; }
  QueuePair& queue_pair() { return *queue_pair_; }
  const Limits& limits() const { return limits_; }

 private:
  // What the receiver writes into the sender's memory; each word by one plain write.
  struct Credits {
    std::uint64_t receives = 0;  // messages whose receives were replaced by new ones
    std::uint64_t padding[7] = {};
    std::array<std::uint64_t, kContextCount> free_before{};  // RingReceiver::free_before
  };
  struct Layout {
    std::uint64_t context0_units = 0;
    std::uint64_t other_units = 0;
    std::uint64_t first_unit(Context context) const {
      return context == 0 ? 0 : context0_units + (context - 1) * other_units;
    }
    std::uint64_t units(Context context) const {
      return context == 0 ? context0_units : other_units;
    }
    std::size_t ring_bytes() const { return first_unit(kContextCount) * kPlaceUnitBytes; }
  };
  struct Reservation {
    std::span<std::byte> memory;
    Context context = 0;
    RingSender::Place place{};
    bool in_peer_memory = false;
  };

  // --- RemoteReads
  std::unique_ptr<MemoryRegion> allocate(std::size_t bytes, unsigned access) override;
  std::size_t max_read_bytes() const override { return limits_.max_request_bytes; }
  bool try_read(const RemoteRegion& from, const MemoryRegion& to) override;
  bool try_finish_read() override;

  // send side
  bool find_place(std::size_t bytes, Context context, RingSender::Place& place);
  bool post(std::span<const std::byte> message, Context context, const RingSender::Place& place,
            bool announces);
  void check_unreserved(Context context) const;
  bool announce(std::uint64_t bytes, Context context);
  SendResult send_large(std::span<const std::byte> message, Context context);
  bool look_for_credit();
  void poll_send_errors();
  [[noreturn]] void fail_sending(const std::string& what);
  std::uint64_t credit(std::size_t offset) const;
  std::span<std::byte> staging(Context context, const RingSender::Place& place, std::size_t bytes);

  // receive side
  bool pass(const Completion& completion, Context context, Delivery& delivery);
  void arrived(const Completion& completion);
  bool take_arrival(RingReceiver& receiver, std::uint64_t unit, std::size_t bytes, bool announces);
  ReceiveResult hand_out(Context context, Delivery& delivery, const std::byte* payload);
  void replace_receives();
  void return_space(Context context) noexcept;
  void return_receives() noexcept;
  void retry_credits() noexcept;
  bool write_credit(std::size_t offset, std::uint64_t value) noexcept;
  void check_receiving();

  // --- set once
  std::unique_ptr<Device> device_;
  std::unique_ptr<QueuePair> queue_pair_;
  const Limits limits_;
  const std::uint64_t receive_count_;      // posted receives, and so messages in flight to us
  Layout layout_;                          // of our rings; after start(), of both sides'
  std::unique_ptr<MemoryRegion> region_;   // our rings, then the Credits that the peer writes
  std::unique_ptr<MemoryRegion> staging_;  // mirrors the peer's rings; null: all is inlined
  RemoteRegion peer_region_;
  std::uint64_t peer_credits_address_ = 0;
  std::uint64_t peer_receive_count_ = 0;
  std::byte* peer_memory_ = nullptr;  // the peer's rings, where the device can store into them

  // --- send side
  alignas(64) std::array<RingSender, kContextCount> senders_;
  std::array<Pieces, kContextCount> pieces_;
  bool took_part_ = false;              // the last try of a large message sent a part of it
  const std::byte* credits_ = nullptr;  // what the peer writes, at the end of region_
  std::uint64_t messages_sent_ = 0;
  std::uint64_t messages_taken_ = 0;  // by the peer, as far as we looked
  Reservation reservation_;
  bool end_sent_ = false;
  Flush flush_;
  bool read_posted_ = false;
  StickyError send_error_;

  // --- receive side
  alignas(64) std::array<RingReceiver, kContextCount> receivers_;
  std::array<std::uint64_t, kContextCount> space_returned_{};
  std::array<Reassembly, kContextCount> large_;
  std::array<Completion, 16> polled_;  // scratch of try_receive, so that no call initialises it
  std::uint64_t receives_to_replace_ = 0;
  std::uint64_t receives_replaced_ = 0;
  bool credit_refused_ = false;  // a credit found no room in the send queue
  bool ended_ = false;
  StickyError receive_error_;

  // --- statistics
  Counter inline_sends_;    // send side
  Counter credit_waits_;    // send side
  Counter credit_returns_;  // receive side
  Counter reassembled_;     // receive side
};

template <typename ByIndex>
bool RingTransport::take_arrivals(ByIndex&& by_index) {
  const std::size_t count = receive_error_.empty() ? queue_pair_->poll_receives(polled_) : 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Completion& completion = polled_[i];
    const Immediate immediate = decode_immediate(completion.immediate);
    if (immediate.has_index() && completion.status == CompletionStatus::kSuccess &&
        completion.kind == CompletionKind::kImmediate && !ended_) [[likely]] {
      ++receives_to_replace_;
      by_index(immediate.context, immediate.index(), completion.bytes);
    } else {
      arrived(completion);
    }
  }
  if (count == 0) {
    if (credit_refused_ || !receive_error_.empty()) [[unlikely]]
      check_receiving();
  } else if (receives_to_replace_ >= receive_count_ / kReplaceShare) {
    replace_receives();
  }
  return count != 0;
}

}  // namespace leat::detail
