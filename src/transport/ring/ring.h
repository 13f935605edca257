// The ring transport (CORA §4, §7): each protocol context has a ring in the receiver's memory. A
// message is one write-with-immediate into the next free place; the immediate tells the receiver
// context and place, and it hands out a view: no demultiplexing, no copy.
//
// The credits of parts/credits.h keep the sender from overrunning the receiver.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/counter.h"
#include "transport/endpoint.h"
#include "transport/parts/credits.h"
#include "transport/parts/reassembly.h"
#include "transport/parts/remote_reads.h"
#include "transport/parts/reservation.h"
#include "transport/parts/sends.h"
#include "transport/ring/places.h"
#include "verbs/arrivals.h"

namespace leat::detail {

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
  bool find_credit() { return credits_.has_receive() || look_for_credit(); }
  // Posts a message with immediate data, after find_credit(). False: would block.
  bool post_request(const SendRequest& request);
  // Receive side. Takes in at most a few arrivals; `by_number` gets planned messages.
  // False: there was nothing; then throws if receiving failed.
  template <typename ByNumber>
  bool take_arrivals(ByNumber&& by_number);
  // The same for those that try_receive takes in. Throws by nonsense().
  virtual void arrived_by_number(std::uint32_t number, std::size_t bytes);
  bool peer_ended() const { return ended_; }
  [[noreturn]] void nonsense(const std::string& what);

  Device& device() { return *device_; }
  QueuePair& queue_pair() { return *queue_pair_; }
  const Limits& limits() const { return limits_; }

 private:
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
  struct ReservedPlace {
    RingSender::Place ring{};
    bool in_peer_memory = false;
  };

  // --- RemoteReads
  std::unique_ptr<MemoryRegion> allocate(std::size_t bytes, unsigned access) override;
  std::size_t max_read_bytes() const override { return limits_.max_request_bytes; }
  bool try_read(const RemoteRegion& from, const MemoryRegion& to) override;
  bool try_finish_read() override;

  // send side
  bool find_place(std::size_t bytes, Context context, RingSender::Place& place);
  bool may_send_shortly() const;
  void send_shortly(std::span<const std::byte> message, RingSender& sender,
                    const RingSender::Place& place, std::uint32_t immediate);
  std::uint64_t short_way_ends() const;
  // These are not compiled into the shortest way.
  [[gnu::noinline]] SendResult send_in_place(std::span<const std::byte> message, Context context);
  [[gnu::noinline]] SendResult send_at_length(std::span<const std::byte> message, Context context);
  bool post(std::span<const std::byte> message, Context context, const RingSender::Place& place,
            bool announces);
  bool announce(std::uint64_t bytes, Context context);
  SendResult send_large(std::span<const std::byte> message, Context context);
  bool look_for_credit();
  void poll_send_errors();
  [[noreturn]] void fail_sending(const std::string& what);
  std::span<std::byte> staging(Context context, const RingSender::Place& place, std::size_t bytes);

  // receive side
  [[gnu::noinline]] ReceiveResult receive_in_place(Context context, Delivery& delivery);
  [[gnu::noinline]] ReceiveResult receive_at_length(Context context, Delivery& delivery);
  [[gnu::noinline]] ReceiveResult settle(Context context);
  void took_one();
  bool pass_small(std::uint32_t immediate, std::size_t bytes, const std::byte* payload,
                  Context context, Delivery& delivery);
  bool pass(std::uint32_t immediate, std::size_t bytes, Context context, Delivery& delivery);
  std::byte* at(std::uint32_t immediate) const;
  [[gnu::noinline]] void arrived(const Completion& completion);
  [[gnu::noinline]] void make_room(RingReceiver& receiver);
  void fail_receiving(ErrorCode code, const std::string& text) noexcept;
  ReceiveResult hand_out(Context context, Delivery& delivery);
  void return_space(Context context) noexcept;
  void check_receiving();

  // --- set once
  std::unique_ptr<Device> device_;
  std::unique_ptr<QueuePair> queue_pair_;
  const Limits limits_;
  Layout layout_;                          // of our rings; after start(), of both sides'
  std::unique_ptr<MemoryRegion> region_;   // our rings, then the CreditWords of the peer
  std::byte* rings_ = nullptr;             // where that begins
  std::unique_ptr<MemoryRegion> staging_;  // mirrors the peer's rings; null: all is inlined
  RemoteRegion peer_region_;
  std::byte* peer_memory_ = nullptr;  // the peer's rings, where the device can store into them
  Arrivals* arrivals_ = nullptr;      // then, the short way; else null
  std::array<std::uint32_t, kContextCount> first_{};  // the immediate of each ring's first unit

  // --- send side
  // So many messages may go the short way until the long way must look again: as many as the peer
  // has receives for, while nothing is reserved or under way, and no longer than until failed sends
  // are looked for. Counted as SendCredits::sent().
  alignas(64) std::uint64_t short_until_ = 0;
  std::size_t too_long_for_short_way_ = 0;
  std::array<RingSender, kContextCount> senders_;
  std::array<Pieces, kContextCount> pieces_;
  Context last_large_ = 0;  // the context of the last try of a large message
  SendCredits credits_;
  Reservation<ReservedPlace> reservation_;
  bool end_sent_ = false;
  Flush flush_;
  bool read_posted_ = false;
  StickyError send_error_;

  // --- receive side
  alignas(64) ArrivalReceiver* short_arrivals_ = nullptr;  // null too after the end and errors
  std::array<RingReceiver, kContextCount> receivers_;
  ReceiveCredits returns_;
  std::array<Reassembly, kContextCount> large_;
  std::array<Completion, 16> polled_;  // scratch of try_receive, so that no call initialises it
  bool ended_ = false;
  StickyError receive_error_;

  // --- statistics
  Counter inline_sends_;  // send side
  Counter credit_waits_;  // send side
  Counter reassembled_;   // receive side
};

template <typename ByNumber>
bool RingTransport::take_arrivals(ByNumber&& by_number) {
  const std::size_t count = receive_error_.empty() ? queue_pair_->poll_receives(polled_) : 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Completion& completion = polled_[i];
    const Immediate immediate = decode_immediate(completion.immediate);
    if (immediate.has_number() && completion.status == CompletionStatus::kSuccess &&
        completion.kind == CompletionKind::kImmediate && !ended_) [[likely]] {
      returns_.add_used();
      by_number(immediate.number(), completion.bytes);
    } else {
      arrived(completion);
    }
  }
  if (count == 0) {
    if (returns_.refused() || !receive_error_.empty()) [[unlikely]]
      check_receiving();
  } else if (returns_.due()) {
    returns_.replace(*queue_pair_);
  }
  return count != 0;
}

}  // namespace leat::detail
