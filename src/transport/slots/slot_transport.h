// What the transports confirm-each and batched have in common: messages in slots of the receiver's
// memory, as many as were made when connecting and no more. They differ in how the receiver learns
// of a message and the sender of a free slot.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/counter.h"
#include "transport/endpoint.h"
#include "transport/parts/reassembly.h"
#include "transport/parts/sends.h"
#include "transport/slots/order.h"
#include "transport/slots/slots.h"

namespace leat::detail {

struct SlotOptions {
  std::size_t slot_bytes = 4096;
  unsigned slot_count = 256;        // of context 0
  unsigned confirm_threshold = 40;  // percent of a context's slots; batched only
  std::size_t max_message_bytes = 0;
  QueueDepths depths;  // with which the queue pair was made

  static SlotOptions of(const Settings& settings, const QueueDepths& depths);
};

class SlotTransport : public Transport {
 public:
  // Look for failed sends at every so many messages; blocked senders look at each try.
  static constexpr std::uint64_t kMessagesPerErrorPoll = 64;

  std::vector<std::byte> setup() const override;
  void start(std::span<const std::byte> peer_setup) override;

  std::span<std::byte> try_reserve(std::size_t bytes, Context context) override;
  SendResult try_commit(std::size_t bytes) override;
  void abandon(Context context) noexcept override;
  bool try_end() override;
  bool try_flush() override;
  void arm(Side side) override { queue_pair_->arm(side); }
  std::string describe() const override;
  void add_stats(Stats& stats) const override;

 protected:
  // `head_bytes`: of our region before the slots, for the transport's own use; a multiple of a
  // cache line. `header_bytes`: of each slot before its message, where memory is not shared.
  // `mirrors`: where memory is not shared the peer may read messages before they are written.
  SlotTransport(const char* name, std::unique_ptr<Device> device,
                std::unique_ptr<QueuePair> queue_pair, const SlotOptions& options,
                std::size_t head_bytes, std::size_t header_bytes, bool mirrors);

  // --- what a transport adds; send side
  // The sides have agreed on layout().
  virtual void started(std::uint64_t peer_key) = 0;
  // A free run, of which nothing is taken yet. Looks for slots that came back as far as it pays.
  virtual std::optional<SlotRun> find_run(Context context, unsigned count) = 0;
  // Sends what stands at outgoing(): takes the run. False: would block, nothing is done.
  virtual bool post(Context context, const SlotRun& run, SlotKind kind, std::size_t bytes) = 0;
  virtual bool post_end() = 0;
  // Everything accepted is to be known to the peer once the flush is complete. False: would block.
  virtual bool prepare_flush() { return true; }
  // --- receive side
  // Takes in what has come. True: perhaps more waits. Sets receive_error_, or throws nonsense().
  virtual bool look() = 0;
  virtual bool waiting(Context context) const = 0;
  virtual SlotOrder::Entry take(Context context) = 0;
  virtual void give_back(Context context, const SlotRun& run) noexcept = 0;
  virtual bool ended(Context context) const = 0;  // and all of that context was taken

  // --- for them: try_send, try_receive and release; `Self` is a final class, so that the functions
  // above are inlined. Defined in hot_path.h.
  template <typename Self>
  static SendResult send_by(Self& self, std::span<const std::byte> message, Context context);
  template <typename Self>
  static ReceiveResult receive_by(Self& self, Context context, Delivery& delivery);
  template <typename Self>
  static void release_by(Self& self, const Delivery& delivery) noexcept {
    self.give_back(delivery.context, {static_cast<unsigned>(delivery.ticket >> 32),
                                      static_cast<unsigned>(delivery.ticket)});
  }

  // --- for them; send side
  // Where the bytes of a run are to be put: the peer's memory itself if the device can store there.
  std::byte* outgoing(Context context, const SlotRun& run) const {
    return outgoing_ + layout_.offset(context, run.first);
  }
  // A write of the first `bytes` of a run, its header included.
  SendRequest write_of(Context context, const SlotRun& run, std::size_t bytes) const;
  // As QueuePair::post_send, counted. Send side.
  virtual std::size_t post_sends(std::span<const SendRequest> requests);
  virtual std::size_t poll_sends(std::span<Completion> completions);
  void poll_send_errors();  // throws if sending failed; completes a flush
  bool no_room();           // what try_send says where there is none
  // Whether the last try_send of a large message sent a part of it.
  bool took_part() const { return took_part_; }
  // A message was accepted otherwise than by send_by.
  void count_message() {
    if (++messages_sent_ % kMessagesPerErrorPoll == 0) poll_send_errors();
  }
  // One is under way in pieces or reserved, or sending has failed: send_by says which.
  bool occupied(Context context) const {
    return pieces_[context].under_way() || reservation_.memory.data() != nullptr ||
           !send_error_.empty();
  }
  [[noreturn]] void fail_sending(const std::string& what);
  // --- receive side. Throws if that context is in the middle of a message in pieces.
  void check_whole(Context context);
  [[noreturn]] void refuse_length(std::size_t bytes);
  [[noreturn]] void nonsense(const std::string& what);

  Device& device() { return *device_; }
  QueuePair& queue_pair() const { return *queue_pair_; }
  const Limits& limits() const { return limits_; }
  const SlotLayout& layout() const { return layout_; }
  const SlotOptions& options() const { return options_; }
  std::byte* head() const { return head_; }
  std::byte* slots() const { return head_ + head_bytes_; }
  // After start(): whether both sides share memory. Then slots have no headers: the transport keeps
  // them in its head, and stores and loads in the peer's by itself.
  bool shares_memory() const { return shares_memory_; }
  // The peer's head; null if memory is not shared, or the peer is gone already.
  std::byte* shared_head() const { return shared_head_; }
  // After start(): whether both processes have registered for each other's heavy barriers.
  bool asymmetric_barriers() const { return asymmetric_barriers_; }
  std::uint32_t local_key() const { return region_->local_key(); }
  // The peer's region: head, then slots.
  std::uint64_t peer_head() const { return peer_region_.address; }
  std::uint64_t peer_slots() const { return peer_region_.address + head_bytes_; }
  std::uint32_t peer_key() const { return peer_region_.key; }
  // What the peer will write into our slots, for us to read; 0 bytes: nowhere. Whether we have it.
  const RemoteRegion& peer_mirror() const { return peer_mirror_; }
  bool has_mirror() const { return mirrors_ && staging_ != nullptr && !direct_; }
  std::uint64_t own_key() const { return own_key_; }

  StickyError receive_error_;              // receive side
  const std::byte* rode_along_ = nullptr;  // of the message handed out next, until look()
  Counter requests_;                       // send requests of the send side
  Counter side_requests_;                  // of the receive side
  Counter receive_requests_;               // receives posted, but for the first ones
  Counter send_completions_;
  Counter receive_completions_;
  Counter credit_waits_;    // send side
  Counter credit_returns_;  // receive side

 private:
  struct Reservation {
    std::span<std::byte> memory;
    Context context = 0;
    SlotRun run;
  };

  template <typename Self>
  static bool send_one(Self& self, std::span<const std::byte> message, Context context,
                       const SlotRun& run, SlotKind kind);
  bool announce(std::uint64_t bytes, Context context);
  SendResult send_large(std::span<const std::byte> message, Context context);
  void check_unreserved(Context context) const;
  template <typename Self>
  static bool hand_out(Self& self, Context context, Delivery& delivery);
  // The same of a piece of a large message, or what announces one.
  bool add_piece(Context context, const SlotOrder::Entry& entry, const std::byte* bytes,
                 Delivery& delivery);
  ReceiveResult nothing_waits(Context context);

  // --- set once
  const char* name_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<QueuePair> queue_pair_;
  const Limits limits_;
  const SlotOptions options_;
  const std::size_t head_bytes_;
  const std::size_t header_bytes_;
  const bool mirrors_;
  bool asymmetric_barriers_;  // after start(), of both sides
  bool shares_memory_ = false;
  std::byte* shared_head_ = nullptr;
  const std::uint64_t own_key_;            // random; for the headers of the peer's messages
  SlotLayout layout_;                      // of our slots; after start(), of both sides'
  std::unique_ptr<MemoryRegion> region_;   // head and slots
  std::byte* const head_;                  // its memory
  std::unique_ptr<MemoryRegion> staging_;  // mirrors the peer's slots; null if sends are inlined
  std::size_t slot_memory_bytes_ = 0;      // of both, without the head
  RemoteRegion peer_region_;
  RemoteRegion peer_mirror_;
  std::byte* outgoing_ = nullptr;  // the peer's slots themselves, or staging_
  bool direct_ = false;            // the former

  // --- send side
  alignas(64) std::array<Pieces, kContextCount> pieces_;
  Reservation reservation_;
  bool took_part_ = false;  // the last try_send did, of a message that it did not finish
  bool end_sent_ = false;
  std::uint64_t messages_sent_ = 0;
  Flush flush_;
  StickyError send_error_;

  // --- receive side
  alignas(64) std::array<Reassembly, kContextCount> large_;
  Counter reassembled_;
  Counter inline_sends_;
};

}  // namespace leat::detail
