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
// When the queue pair fails both sides make a new one and go on from the last confirmed chunk
// (resumption.h). docs/transports/chunked.md has the whole.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/counter.h"
#include "base/fd.h"
#include "transport/chunked/parts.h"
#include "transport/chunked/resumer.h"
#include "transport/chunked/sender.h"
#include "transport/chunked/window.h"
#include "transport/endpoint.h"
#include "transport/parts/credits.h"
#include "transport/parts/reassembly.h"
#include "transport/parts/reservation.h"
#include "transport/parts/ring_sender.h"
#include "transport/parts/sticky_error.h"

namespace leat::detail {

class ChunkedTransport final : public Transport {
 public:
  // Allocates the regions and posts the receives: the peer may send once it has setup(). Throws
  // kResource; kInvalidArgument for regions that no immediate data could name. `resumer`: null if a
  // queue pair that failed ends the connection.
  ChunkedTransport(std::unique_ptr<Device> device, std::unique_ptr<QueuePair> queue_pair,
                   const ChunkedOptions& options, std::unique_ptr<Resumer> resumer = nullptr);
  ~ChunkedTransport() override;
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
  void arm(Side side) override;
  Outlook outlook(Side side, Look look) const override;
  std::string describe() const override;
  void add_stats(Stats& stats) const override;

 private:
  using Layout = ChunkLayout;
  using Outgoing = OutgoingTransfer;
  using Source = TransferSource;

  std::size_t part_bytes(Context context) const;
  void set_facts();

  // --- resuming
  // The turn of a side; none while the queue pair is re-established.
  std::unique_lock<std::mutex> turn(std::mutex& mutex) const;
  // Begins to re-establish the queue pair. False: this connection cannot.
  bool break_off(const std::string& why);
  void ask_whether_wanted();
  void resume() noexcept;  // in a thread of its own
  void take_leave();
  void adopt(Resumer::Outcome outcome);
  bool catch_up(Deadline deadline);
  void make_waits();
  void stage(std::size_t bytes);  // memory for what is in flight
  void fit_staging();             // what may be in flight, and memory for it
  void watch_queue_pair();
  std::string progress() const;

  // send side
  SendResult send(const Source& source, Context context);
  SendResult unsent(Context context) const {
    return outgoing_[context].active ? SendResult::kUnderWay : SendResult::kNoRoom;
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
  void take_completion();
  [[noreturn]] void fail_sending(ErrorCode code, const std::string& what);
  bool no_room();

  // receive side
  void arrived(const Completion& completion);
  void take_arrival(const Completion& completion);
  ReceiveResult hand_out(Context context, Delivery& delivery);
  void check_digest(std::span<const std::byte> message, const ChunkDigest& digest);
  void return_space(Context context) noexcept;
  void retry_credits() noexcept;
  [[noreturn]] void fail_receiving(ErrorCode code, const std::string& what);
  [[noreturn]] void nonsense(const std::string& what);

  // --- set once
  std::unique_ptr<Device> device_;
  std::unique_ptr<Resumer> resumer_;
  Fd waits_[2];  // by Side, with a resumer: epoll of the queue pair's event and wake_
  Fd wake_[2];   // by Side: resuming has come to an end

  // --- resuming. Each side holds its mutex during a call, which nobody contends as long as things
  // go well; a thread that changes the queue pair holds both.
  mutable std::mutex send_mutex_;
  mutable std::mutex receive_mutex_;
  mutable std::mutex queue_pair_mutex_;  // for callers that only describe it
  std::mutex resume_mutex_;              // resumer_thread_
  std::thread resumer_thread_;
  // Set before that thread starts, cleared at its end: release, so that a caller that sees it
  // cleared sees the new queue pair; the mutexes order all else.
  std::atomic<bool> resuming_{false};
  std::string why_broken_;  // of that thread, set before it starts
  bool gave_up_ = false;    // of that thread
  std::unique_ptr<MemoryRegion> headers_again_;
  Counter resumes_;
  std::unique_ptr<QueuePair> queue_pair_;

  // --- set once
  const Limits limits_;
  ChunkedOptions options_;  // after start(), chunk_bytes and verify as both sides have them
  Layout layout_;           // of our pools
  Layout peer_layout_;
  std::unique_ptr<MemoryRegion> region_;   // our pools, then the CreditWords of the peer
  std::unique_ptr<MemoryRegion> staging_;  // chunks in flight; null: requests run as posted
  RemoteRegion peer_region_;

  // --- send side
  alignas(64) std::array<PoolSender, kContextCount> senders_;
  std::array<Outgoing, kContextCount> outgoing_;
  std::array<std::uint32_t, kContextCount> transfers_{};  // sent, of each context
  std::array<std::uint64_t, kContextCount> parts_{};
  ChunkSender works_;  // unused where requests run as they are posted
  ChunkWindow window_;
  RingSender stage_;
  SendCredits credits_;  // for announcements
  std::unique_ptr<MemoryRegion> reserved_memory_;
  bool reserved_in_flight_ = false;
  Reservation<> reservation_;
  bool took_part_ = false;  // the last try_send did, of a transfer that it did not finish
  bool end_sent_ = false;
  unsigned fruitless_sends_ = 0;
  StickyError send_error_;

  // --- receive side
  alignas(64) std::array<PoolReceiver, kContextCount> receivers_;
  ReceiveCredits returns_;
  std::array<Reassembly, kContextCount> large_;
  bool ended_ = false;
  unsigned fruitless_polls_ = 0;
  StickyError receive_error_;

  // --- statistics
  Counter chunks_;        // send side
  Counter credit_waits_;  // send side
  Counter reassembled_;   // receive side
};

}  // namespace leat::detail
