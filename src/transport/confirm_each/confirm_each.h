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
#include <optional>
#include <span>
#include <vector>

#include "base/spin_lock.h"
#include "transport/slots/slot_transport.h"

namespace leat::detail {

class ConfirmEachTransport final : public SlotTransport {
 public:
  // Allocates the slots and posts the receives: the peer may send once it has setup(). Throws
  // kResource; kInvalidArgument for more slots than receives can be posted for.
  ConfirmEachTransport(std::unique_ptr<Device> device, std::unique_ptr<QueuePair> queue_pair,
                       const SlotOptions& options);
  static std::unique_ptr<Transport> make(Endpoint end, const Settings& settings) {
    return std::make_unique<ConfirmEachTransport>(std::move(end.device), std::move(end.queue_pair),
                                                  SlotOptions::of(settings, end.depths));
  }

  SendResult try_send(std::span<const std::byte> message, Context context) override;
  ReceiveResult try_receive(Context context, Delivery& delivery) override;
  void release(Delivery& delivery) noexcept override;
  Outlook outlook(Side side, Look look) const override;

 private:
  friend SlotTransport;  // its templates
  static constexpr bool kBundles = false;

  struct Arrival {
    std::uint32_t immediate = 0;
    std::uint32_t bytes = 0;
  };

  // --- SlotTransport
  void started(std::uint64_t peer_key) override;
  std::optional<SlotRun> find_run(Context context, unsigned count) override;
  bool post(Context context, const SlotRun& run, SlotKind kind, std::size_t bytes) override;
  bool post_end() override;
  std::size_t post_sends(std::span<const SendRequest> requests) override;
  std::size_t poll_sends(std::span<Completion> completions) override;
  bool look() override;
  bool waiting(Context context) const override { return orders_[context].waiting(); }
  SlotOrder::Entry take(Context context) override { return orders_[context].take(); }
  void give_back(Context context, const SlotRun& run) noexcept override;
  bool ended(Context context) const override { return ended_ && !waiting(context); }

  // Polls what has come, under receive_lock_: into inbox_ and came_back_.
  bool poll_arrivals();
  void replace_receives();
  bool take_slots();                     // send side
  void arrived(const Arrival& arrival);  // receive side
  void tell_slots() noexcept;            // receive side

  // --- set once
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
  std::vector<SendRequest> untold_;  // slots given back that the peer was not told of
  std::size_t tell_at_ = 1;          // how many are told together
  std::uint32_t arrived_ = 0;
  std::uint32_t given_back_ = 0;
  bool ended_ = false;
};

}  // namespace leat::detail
