// Transport batched where both sides share memory: the sender stores messages, headers and what the
// receiver looks at, and each side loads the other's bitmap where it stands. Only a doorbell is a
// request, and an empty write now and then, which asks whether the peer is still there.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/asymmetric_barrier.h"
#include "base/prefetch.h"
#include "transport/batched/parts.h"
#include "transport/batched/read_pauses.h"
#include "transport/batched/receiver.h"
#include "transport/batched/sender.h"
#include "transport/slots/slot_end.h"

namespace leat::detail {

// A BatchedReach, which says what its functions do.
class ByMemory final {
 public:
  static constexpr SlotMemory kMemory{.transport = "batched",
                                      .head_bytes = sizeof(BatchedHead),
                                      .header_bytes = sizeof(SlotFront),
                                      .shares_memory = true};

  ByMemory(SlotEnd& end, BatchedSender& sender, BatchedReceiver& receiver)
      : end_(end),
        head_(*reinterpret_cast<BatchedHead*>(end.head())),
        sender_(sender),
        receiver_(receiver) {}
  void started();

  // --- send side
  [[gnu::always_inline]] SlotRun find_run(Context context, unsigned count) {
    const auto look = [&] {
      sender_.count_look();
      sender_.take_given(peer_->given, context);
    };
    return sender_.find(context, count, look);
  }
  bool post_unit(Context context, const SlotRun& run, SlotKind kind, std::size_t bytes);
  bool land();
  std::size_t post_sends(std::span<const SendRequest> requests) {
    return end_.post_sends(requests);
  }
  std::size_t poll_sends(std::span<Completion> completions);
  void bundle_opened(Context /*context*/, const SlotRun& /*run*/) {}
  void bundle_grows() { prefetch_for_writing(sender_.bundle_end() + kBundleAhead); }
  // The receiver that allows doorbells has all our threads pass a full barrier before it believes
  // the number that we published.
  void pass_barrier() { light_barrier(end_.asymmetric_barriers()); }
  void bundle_closes() {}

  // --- receive side
  bool look();

  void arm(Side side);
  Outlook outlook(Side side, Look look) const;

 private:
  // The lines of a bundle are fetched so far ahead of the message that is stored.
  static constexpr std::size_t kBundleAhead = 512;

  void fetch_ahead(Context context, const SlotRun& run, std::size_t bytes) const;
  bool look_at_filled();
  bool load_filled();
  void allow() noexcept;

  // --- set once
  SlotEnd& end_;
  BatchedHead& head_;
  BatchedSender& sender_;
  BatchedReceiver& receiver_;
  BatchedHead* peer_ = nullptr;
  std::unique_ptr<BatchedHead> nobody_;  // stands for the head of a peer that has gone already

  // --- send side
  alignas(64) unsigned probes_ = 0;  // polls of sends

  // --- receive side
  alignas(64) ReadPauses pauses_;
  std::uint64_t unbundled_before_ = 0;  // messages of bundles handed out up to the last read
};

}  // namespace leat::detail
