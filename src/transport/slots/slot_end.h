// One side of a transport with slots (confirm-each, batched): its queue pair, the memory that the
// peer writes into, where the peer's lies, why a side is dead, and what is counted. It knows
// nothing of how the receiver learns of a message and the sender of a free slot.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/counter.h"
#include "base/settings.h"
#include "leat/stats.h"
#include "transport/parts/sends.h"
#include "transport/slots/slots.h"

namespace leat::detail {

struct SlotOptions {
  std::size_t slot_bytes = 4096;
  unsigned slot_count = 256;        // of context 0
  unsigned confirm_threshold = 40;  // percent of a context's slots; batched only
  bool bundles = true;              // small messages that we send share slots; batched only
  std::size_t max_message_bytes = 0;
  QueueDepths depths;  // with which the queue pair was made

  static SlotOptions of(const Settings& settings, const QueueDepths& depths);
};

// What a way of confirming needs of the memory; both sides need the same.
struct SlotMemory {
  const char* transport = "";    // its name
  std::size_t head_bytes = 0;    // of the region, before the slots; a multiple of a cache line
  std::size_t header_bytes = 0;  // of each slot, before its message; where memory is shared none
  // Both sides store and load in each other's region, and the peer must say that it does so too.
  bool shares_memory = false;
  // The peer may read what will be written into its slots.
  bool mirrors = false;
};

class SlotEnd {
 public:
  // Allocates the slots. Throws kResource.
  SlotEnd(const SlotMemory& memory, std::unique_ptr<Device> device,
          std::unique_ptr<QueuePair> queue_pair, const SlotOptions& options);

  std::vector<std::byte> setup() const;
  // Takes the peer's setup(), which may be anything. Throws kProtocol.
  void start(std::span<const std::byte> peer_setup);

  QueuePair& queue_pair() const { return *queue_pair_; }
  const Limits& limits() const { return limits_; }
  const SlotOptions& options() const { return options_; }
  // Of our slots; after start(), of both sides'.
  const SlotLayout& layout() const { return layout_; }
  // After start(), what both sides can do.
  std::size_t max_message_bytes() const { return max_message_bytes_; }
  std::size_t max_in_place_bytes(Context context) const {
    return max_in_place_bytes_[context != 0];
  }
  // Whether both processes have registered for each other's heavy barriers.
  bool asymmetric_barriers() const { return asymmetric_barriers_; }

  // --- our region
  std::byte* head() const { return head_; }
  std::byte* slots() const { return head_ + memory_.head_bytes; }
  std::uint32_t local_key() const { return region_->local_key(); }
  std::uint64_t header_key() const { return header_key_; }
  // --- the peer's; after start()
  const RemoteRegion& peer() const { return peer_region_; }
  std::uint64_t peer_slots() const { return peer_region_.address + memory_.head_bytes; }
  std::uint64_t peer_header_key() const { return peer_header_key_; }
  // The head itself where we store into the peer's region; null where we cannot, or the peer has
  // gone already.
  std::byte* peer_head_memory() const { return peer_memory_; }
  // What the peer will write into our slots, for us to read; 0 bytes: nowhere.
  const RemoteRegion& peer_mirror() const { return peer_mirror_; }
  // Where the bytes of a run are to be put: the peer's memory itself if we store there.
  std::byte* outgoing(Context context, const SlotRun& run) const {
    return outgoing_ + layout_.offset(context, run.first);
  }
  std::byte* outgoing_message(Context context, const SlotRun& run) const {
    return outgoing(context, run) + layout_.header_bytes();
  }

  // --- send side
  // A write of the first `bytes` of a run, its header included.
  SendRequest write_of(Context context, const SlotRun& run, std::size_t bytes) const;
  // As QueuePair::post_send and poll_sends, counted.
  std::size_t post_sends(std::span<const SendRequest> list);
  std::size_t poll_sends(std::span<Completion> completions);
  // Takes the completions that `poll` brings. Throws if sending failed.
  template <typename Poll>
  void look_at_sends(Poll&& poll) {
    detail::look_at_sends(*queue_pair_, send_error, poll, [this](std::uint64_t id) {
      if (id == Flush::kId) flush.completed();
    });
  }
  [[noreturn]] void fail_sending(const std::string& what);
  // --- receive side
  [[noreturn]] void refuse_length(std::size_t bytes);
  [[noreturn]] void nonsense(const std::string& what);

  std::string describe() const;
  void add_stats(Stats& stats) const;

  // --- send side
  StickyError send_error;
  Flush flush;
  Counter requests;
  Counter send_completions;
  Counter credit_waits;
  // --- receive side
  alignas(64) StickyError receive_error;
  Counter side_requests;     // send requests of the receive side
  Counter receive_requests;  // receives posted, but for the first ones
  Counter receive_completions;
  Counter credit_returns;

 private:
  // --- set once; after start() only read
  alignas(64) const SlotMemory memory_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<QueuePair> queue_pair_;
  const Limits limits_;
  const SlotOptions options_;
  bool asymmetric_barriers_;        // after start(), of both sides
  const std::uint64_t header_key_;  // random; for the headers of the peer's messages
  SlotLayout layout_;
  std::size_t max_message_bytes_;
  std::array<std::size_t, 2> max_in_place_bytes_{};
  std::unique_ptr<MemoryRegion> region_;   // head and slots
  std::byte* const head_;                  // its memory
  std::unique_ptr<MemoryRegion> staging_;  // mirrors the peer's slots; null where none is needed
  std::size_t slot_memory_bytes_ = 0;      // of both, without the head
  RemoteRegion peer_region_;
  RemoteRegion peer_mirror_;
  std::uint64_t peer_header_key_ = 0;
  std::byte* peer_memory_ = nullptr;
  std::byte* outgoing_ = nullptr;  // the peer's slots themselves, or staging_
};

}  // namespace leat::detail
