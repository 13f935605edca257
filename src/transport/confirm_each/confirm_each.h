// The transport confirm-each: what HiPower calls confirming per work request, its "Vanilla". The
// same slots as transport batched, but every message is announced by immediate data, and every slot
// is given back by immediate data of its own. It is the baseline that batched is measured against,
// so it does what a good program of that kind does: no completions of sends, posted lists, polling
// and replacing of receives many at a time.
//
// Announcements of messages and slots given back arrive in one receive queue, which both threads of
// a channel therefore poll, each handing over what is the other's; and both post. A lock for each
// queue.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/spin_lock.h"
#include "transport/endpoint.h"
#include "transport/slots/order.h"
#include "transport/slots/slot_end.h"

namespace leat::detail {

// Throws kResource; kInvalidArgument for more slots than receives can be posted for.
std::unique_ptr<Transport> make_confirm_each(std::unique_ptr<Device> device,
                                             std::unique_ptr<QueuePair> queue_pair,
                                             const SlotOptions& options);
std::unique_ptr<Transport> make_confirm_each(Endpoint end, const Settings& settings);

// A SlotWay, which says what its functions do.
class ConfirmEach {
 public:
  static constexpr SlotMemory kMemory{.transport = "confirm-each"};
  static constexpr bool kBundles = false;

  // Posts the receives.
  explicit ConfirmEach(SlotEnd& end);
  void started();

  SlotRun find_run(Context context, unsigned count);
  bool post(Context context, const SlotRun& run, SlotKind kind, std::size_t bytes);
  bool post_end();
  bool prepare_flush() { return true; }
  std::size_t post_sends(std::span<const SendRequest> requests);
  void poll_send_errors();

  bool look();
  bool waiting(Context context) const { return orders_[context].waiting(); }
  SlotOrder::Entry take(Context context) { return orders_[context].take(); }
  const std::byte* rode_along() { return nullptr; }
  void give_back(Context context, const SlotRun& run) noexcept;
  bool ended(Context context) const { return ended_ && !waiting(context); }

  void arm(Side side) { end_.queue_pair().arm(side); }
  Outlook outlook(Side side, Look look) const;
  void add_stats(Stats& /*stats*/) const {}

 private:
  struct Arrival {
    std::uint32_t immediate = 0;
    std::uint32_t bytes = 0;
  };

  const SlotLayout& layout() const { return end_.layout(); }

  // Polls what has come, under receive_lock_: into inbox_ and came_back_.
  bool poll_arrivals();
  void replace_receives();
  bool take_slots();                     // send side
  void arrived(const Arrival& arrival);  // receive side
  void tell_slots() noexcept;            // receive side

  // --- set once
  SlotEnd& end_;
  std::size_t receive_count_ = 0;

  // --- both sides post
  SpinLock send_lock_;
  // --- both sides poll; all of it under the lock
  mutable SpinLock receive_lock_;
  std::vector<Arrival> inbox_;            // messages, for the receive side
  std::vector<std::uint32_t> came_back_;  // immediates of slots, for the send side
  std::size_t to_replace_ = 0;
  bool flushed_receives_ = false;
  std::string receive_trouble_;

  // --- send side
  alignas(64) std::array<SlotPool, kContextCount> pools_;
  std::vector<std::uint8_t> counts_;  // by first slot, over all contexts: slots of its message
  std::vector<std::uint32_t> took_;   // scratch of take_slots
  std::uint32_t sent_ = 0;
  std::uint32_t came_back_before_ = 0;

  // --- receive side
  alignas(64) std::array<SlotOrder, kContextCount> orders_;
  std::array<std::uint32_t, kContextCount> places_{};
  std::vector<Arrival> took_in_;     // scratch of look
  std::vector<SendRequest> untold_;  // slots given back, not announced to the peer yet
  std::size_t tell_at_ = 1;          // how many are announced together
  std::uint32_t arrived_ = 0;
  std::uint32_t given_back_ = 0;
  bool ended_ = false;
};

}  // namespace leat::detail
