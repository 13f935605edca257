// The chunked transport (FedRDMA §3): large transfers over paths that lose and are far. A transfer,
// which is a message, goes in chunks of which only so many bytes are on the path at once that its
// narrow place can hold them (window.h).
//
// chunked_mode=inplace: the receiver has for each context a pool of regions that each hold a whole
// transfer. Chunks go from the last to the first straight to their place; only the first carries a
// header, and its arrival, by immediate data, is the arrival of all. No reassembly, no other
// memory. chunked_mode=header: every chunk carries a header, and the receiver puts them together.
// Either way a transfer that is too large for one part goes in several, each with a header.
//
// When the queue pair fails both sides make a new one (resumption.h), and go on from the last
// confirmed chunk (resume.cc). docs/transports/chunked.md has the whole.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/counter.h"
#include "transport/chunked/parts.h"
#include "transport/chunked/resumption.h"
#include "transport/chunked/sender.h"
#include "transport/chunked/window.h"
#include "transport/endpoint.h"
#include "transport/parts/credits.h"
#include "transport/parts/reassembly.h"
#include "transport/parts/reservation.h"
#include "transport/parts/ring_sender.h"
#include "transport/parts/sticky_error.h"

namespace leat::detail {

class ChunkedTransport final : public Transport, private Resumption::Transfers {
 public:
  // Allocates the regions and posts the receives: the peer may send once it has setup(). Throws
  // kResource; kInvalidArgument for regions that no immediate data could name. `resumer`: null if a
  // queue pair that failed ends the connection.
  ChunkedTransport(std::unique_ptr<Device> device, std::unique_ptr<QueuePair> queue_pair,
                   const ChunkedOptions& options, std::unique_ptr<Resumer> resumer = nullptr);
  ~ChunkedTransport() override { resumption_.stop(); }
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
  void arm(Side side) override { resumption_.arm(side); }
  Outlook outlook(Side side, Look look) const override;
  std::string describe() const override { return "chunked on " + resumption_.describe(); }
  void add_stats(Stats& stats) const override;

 private:
  using Layout = ChunkLayout;
  using Outgoing = OutgoingTransfer;
  using Source = TransferSource;

  std::size_t part_bytes(Context context) const;
  void set_facts();

  void stage(std::size_t bytes);  // memory for what is in flight
  void fit_staging();             // what may be in flight, and memory for it

  // --- Resumption::Transfers
  void take_arrival(const Completion& completion) override;
  void take_completion() override;
  std::size_t unfinished() const override { return works_.waiting(); }
  std::uint64_t arrivals() const override { return returns_.used(); }
  void resumed(std::uint64_t peer_arrivals) override;
  bool send_again() override;
  void lost(ErrorCode code, std::initializer_list<std::string_view> why) noexcept override;
  std::string progress() const;

  // send side
  SendResult send(const Source& source, Context context);
  SendResult unsent(Context context) const {
    return flows_[context].transfer.active ? SendResult::kUnderWay : SendResult::kNoRoom;
  }
  bool take_back(Context context);
  bool send_part(const Source& source, Context context, Outgoing& out);
  bool post_chunk(const Source& source, Context context, const Outgoing& out, std::size_t bytes,
                  bool announces, std::size_t part_offset, std::size_t length);
  bool post_at_once(const SendRequest& chunk, const SendRequest& announcement, bool announces);
  bool post_work(ChunkWork& work);
  bool post_request(ChunkWork& work);
  ChunkHeader header_of(Context context, const Outgoing& out, std::size_t length) const;
  std::byte* stage(std::size_t bytes, RingSender::Place& place);
  bool find_credit();
  bool find_place(Context context, std::size_t bytes, PoolSender::Place& place);
  bool look_at_sends();
  [[noreturn]] void refuse_credit(const char* why);
  [[noreturn]] void fail_sending(ErrorCode code, const std::string& what);
  bool no_room();

  // receive side
  void arrived(const Completion& completion);
  ReceiveResult hand_out(Context context, Delivery& delivery);
  void check_digest(std::span<const std::byte> message, const ChunkDigest& digest);
  void return_space(Context context) noexcept;
  void retry_credits() noexcept;
  [[noreturn]] void fail_receiving(ErrorCode code, const std::string& what);
  [[noreturn]] void nonsense(const std::string& what);

  // --- set once
  std::unique_ptr<Device> device_;
  const Limits limits_;
  Resumption resumption_;   // which has the queue pair; each call takes its side's turn
  ChunkedOptions options_;  // after start(), chunk_bytes and verify as both sides have them
  Layout layout_;           // of our pools
  Layout peer_layout_;
  std::unique_ptr<MemoryRegion> region_;   // our pools, then the CreditWords of the peer
  std::unique_ptr<MemoryRegion> staging_;  // chunks in flight; null: requests run as posted
  RemoteRegion peer_region_;

  // --- send side
  alignas(64) std::array<OutgoingFlow, kContextCount> flows_;
  ChunkSender works_;  // unused where requests run as they are posted
  ChunkWindow window_;
  RingSender stage_;                             // of staging_
  std::unique_ptr<MemoryRegion> headers_again_;  // of announcements that go again
  SendCredits credits_;                          // for announcements
  std::unique_ptr<MemoryRegion> reserved_memory_;
  bool reserved_in_flight_ = false;
  Reservation<> reservation_;
  bool took_part_ = false;  // the last try_send did, of a transfer that it did not finish
  bool end_sent_ = false;
  StickyError send_error_;

  // --- receive side
  alignas(64) std::array<PoolReceiver, kContextCount> receivers_;
  ReceiveCredits returns_;
  std::array<Reassembly, kContextCount> large_;
  bool ended_ = false;
  StickyError receive_error_;

  // --- statistics
  Counter chunks_;        // send side
  Counter credit_waits_;  // send side
  Counter reassembled_;   // receive side
};

}  // namespace leat::detail
