// Transport batched where memory is not shared. A message is two requests of its sender: the write
// that fills the slot, and behind it a read of that slot's header word `echo` into the sender's own
// bitmap. A read comes after the writes that were posted before it, so its answer says that the
// write is complete; the answer itself flips the bit, whatever the sender's processor does
// meanwhile. Each side reads the other's bitmap by a request, and the receiver the sender's open
// bundle. Both threads of a side post, and both poll.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "base/clock.h"
#include "transport/batched/parts.h"
#include "transport/batched/read_pauses.h"
#include "transport/batched/receiver.h"
#include "transport/batched/send_queue.h"
#include "transport/batched/sender.h"
#include "transport/slots/slot_end.h"

namespace leat::detail {

// A BatchedReach, which says what its functions do.
class ByRequests final {
 public:
  static constexpr SlotMemory kMemory{.transport = "batched",
                                      .head_bytes = sizeof(BatchedHead),
                                      .header_bytes = sizeof(SlotFront),
                                      .mirrors = true};

  ByRequests(SlotEnd& end, BatchedSender& sender, BatchedReceiver& receiver)
      : end_(end),
        head_(*reinterpret_cast<BatchedHead*>(end.head())),
        sender_(sender),
        receiver_(receiver),
        queue_(end) {}
  void started();

  // --- send side
  SlotRun find_run(Context context, unsigned count);
  bool post_unit(Context context, const SlotRun& run, SlotKind kind, std::size_t bytes);
  bool land();
  std::size_t post_sends(std::span<const SendRequest> requests) { return queue_.post(requests); }
  std::size_t poll_sends(std::span<Completion> completions) { return queue_.poll(completions); }
  void bundle_opened(Context context, const SlotRun& run);
  void bundle_grows() {}
  // Between our number and our look at the limit. The receiver writes the limit, passes such a
  // barrier too, and reads the number: one of us sees the other.
  void pass_barrier() { std::atomic_thread_fence(std::memory_order_seq_cst); }
  // A receiver that finds the bundle open may read it: so it is taken out before its write.
  void bundle_closes() { sender_.publish(); }

  // --- receive side
  bool look() {
    return receiver_.look([this] { return look_at_filled(); });
  }

  void arm(Side side);
  Outlook outlook(Side side, Look look) const;

 private:
  // --- send side
  void look_at_given(Context context);
  SendRequest echo_of(unsigned word);
  void post_echoes();
  bool post_rest() {
    return sender_.post_rest(
        [this](std::span<const SendRequest> requests) { return queue_.post(requests); });
  }
  void notify(std::uint32_t immediate) {
    sender_.notify({}, immediate,
                   [this](std::span<const SendRequest> requests) { return queue_.post(requests); });
  }

  // --- receive side
  SendRequest read_of(std::uint64_t id, void* to, std::size_t from, std::size_t bytes) const;
  bool look_at_filled();
  bool take_read(bool quick);
  void pull(const Posted& posted);
  bool take_pulled();
  void allow() noexcept;
  void write_limit() noexcept;

  // --- set once
  SlotEnd& end_;
  BatchedHead& head_;
  BatchedSender& sender_;
  BatchedReceiver& receiver_;

  alignas(64) SharedSendQueue queue_;

  // --- send side
  alignas(64) std::uint64_t unechoed_ = 0;  // bit i: no read of ours will show that word's flips
  std::array<unsigned, kMaxSlotWords> last_in_word_{};  // slots that have its latest `echo`
  bool reading_given_ = false;
  // Slots of which nothing was posted since the read of what was given back. Once that is over all
  // before it is, echoes of those slots too, which a later write to a slot might overtake.
  BitmapWords settled_{};

  // --- receive side
  alignas(64) ReadPauses pauses_;
  Clock::time_point read_begun_;  // the last one
  bool pulling_ = false;
  Posted pulled_;                         // what is or was pulled
  std::uint32_t places_before_pull_ = 0;  // found in its context when the pull began
  bool limit_unwritten_ = false;          // it found no room in the send queue
};

}  // namespace leat::detail
