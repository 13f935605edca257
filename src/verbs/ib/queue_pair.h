// QueuePair on libibverbs.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mapped_memory.h"
#include "base/spin_lock.h"
#include "verbs/device.h"
#include "verbs/ib/cm.h"
#include "verbs/ib/events.h"
#include "verbs/ib/handle.h"
#include "verbs/ib/rnr_counter.h"

namespace leat::detail {

// What the queue pairs of one opened device share. The device owns it and outlives them.
struct IbDomain {
  std::string verbs_name;  // "mlx5_0"
  std::string where;       // "mlx5_0:1", for errors
  unsigned port = 1;
  bool only_this_port = false;  // its connections use no other port
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  std::shared_ptr<IbEvents> events;
  Limits limits;
  ibv_mtu mtu = IBV_MTU_1024;
  std::uint8_t reads = 0;  // outstanding on one queue pair, each way
  // 4.096 us * 2^16 = 268 ms between the seven transmissions of an unanswered packet.
  std::uint8_t ack_timeout = 16;
};

// Owned by the transport. Threads: as for QueuePair. A spin lock protects the send queue, because
// the receiving thread may post to it; the receive queue has no lock.
//
// The hot path neither throws nor logs. A verbs call that fails there moves the queue pair to the
// error state; requests that the device then refuses, which it should not, complete here, in order,
// as flushed.
class IbQueuePair final : public QueuePair, private IbEventTarget {
 public:
  // One less than the maximum, which rxe takes as unlimited.
  static constexpr std::uint8_t kRetries = 6;
  static constexpr std::uint8_t kRnrRetries = 7;  // unlimited

  // Not connected yet. Throws kResource.
  IbQueuePair(const IbDomain& domain, const QueueDepths& depths);
  ~IbQueuePair() override;
  IbQueuePair(const IbQueuePair&) = delete;
  IbQueuePair& operator=(const IbQueuePair&) = delete;

  // --- connecting, in this order
  std::uint32_t number() const noexcept { return queue_pair_->qp_num; }
  // Makes both directions ready, as `id` has agreed with the peer, with packets of at most
  // `peer_mtu`.
  void make_ready(rdma_cm_id* id, ibv_mtu peer_mtu);
  // Takes over the connection, to detect and to signal its end.
  void connected(CmChannel channel, CmId id);

  std::size_t post_send(std::span<const SendRequest> requests) override;
  std::size_t post_receives(std::size_t count) override;
  std::size_t poll_sends(std::span<Completion> completions) override;
  std::size_t poll_receives(std::span<Completion> completions) override;
  void arm(Side which) override;
  int event_fd(Side which) const override;
  std::byte* peer_memory(const RemoteRegion& part) override;
  std::uint64_t rnr_retries() const override { return rnr_counter_.get(); }
  std::string describe() const override;

 private:
  // Decides when a side that polls without success looks at the connection: rarely, because that is
  // a system call.
  class IdleCheck {
   public:
    bool due();

   private:
    unsigned empty_polls_ = 0;
    Clock::time_point next_{};
  };

  // A completion queue, and what a thread needs to sleep on it.
  struct CompletionSide {
    CompletionSide(const IbDomain& domain, std::size_t depth, IbEventTarget& target);
    IbChannelHandle channel;
    IbQueueHandle queue;
    Fd sleep;  // epoll of `channel` and of the connection's events
    IdleCheck idle;
  };

  // An entry of the send queue, from its post to its completion.
  struct Slot {
    std::uint64_t id;
    std::uint32_t bytes;
    bool signaled;            // the user wants a completion on success too
    CompletionStatus reason;  // of a failure that the device cannot report; else kSuccess
  };

  CompletionSide& side(Side which) { return which == Side::kSend ? sends_ : receives_; }

  void create_queue_pair();
  void prepare_queues();

  // --- send side, under send_lock_
  Slot& slot(std::uint64_t sequence) { return slots_[sequence & send_mask_]; }
  std::size_t send_room() const;
  void build(const SendRequest& request, std::uint64_t sequence, ibv_send_wr& work, ibv_sge& part);
  std::size_t post_to_device(std::span<const SendRequest> requests);
  void abandon_sends(std::span<const SendRequest> refused);
  void keep_finished_sends();
  std::size_t finished_sends(std::span<Completion> completions, bool& more);
  bool finish_send(const ibv_wc& work, Completion& completion);
  CompletionStatus failure_of(const Slot& slot, CompletionStatus seen);
  std::size_t flush_sends(std::span<Completion> completions);

  // --- receive side
  Completion finish_receive(const ibv_wc& work);
  void abandon_receives();
  std::size_t flush_receives(std::span<Completion> completions);

  // --- the end of the connection; any thread
  void fail() noexcept;
  void move_to_error() noexcept;
  void look_for_disconnect();
  void lost() noexcept override;
  // Whether the device may report nothing more; then the connection has failed.
  bool is_lost() noexcept;

  const IbDomain& domain_;
  const MadeHere made_here_;
  const IbRnrCounter rnr_counter_;

  // The connection. Declared first, so that it outlives the queue pair, whose number it holds.
  std::optional<CmChannel> cm_channel_;
  CmId cm_id_;
  SpinLock cm_lock_;
  std::string description_;  // everything but the state
  std::atomic<bool> failed_{false};
  std::atomic<bool> peer_gone_{false};  // set before failed_
  // The device has failed, or what belongs to this queue pair: what is polled in vain comes no
  // more.
  std::atomic<bool> lost_{false};

  std::size_t send_depth_;
  std::size_t receive_depth_;
  CompletionSide sends_;
  CompletionSide receives_;
  // Memory for payloads to be inlined that exceed what the device granted; one place for each entry
  // of the send queue.
  std::size_t inline_bytes_ = 0;
  MappedMemory inline_memory_;
  IbRegionHandle inline_region_;  // declared after its memory, so destroyed first
  IbQueuePairHandle queue_pair_;

  // The send queue. Sequence numbers count requests; those in [done_, posted_) are under way.
  alignas(64) SpinLock send_lock_;
  std::uint64_t done_ = 0;
  std::uint64_t posted_ = 0;
  std::size_t unsignaled_ = 0;  // since the last request with a completion
  bool send_failure_told_ = false;
  bool sends_abandoned_ = false;  // the device refused one or went silent: all complete here
  std::uint64_t send_mask_ = 0;
  std::vector<Slot> slots_;
  std::vector<ibv_send_wr> send_work_;
  std::vector<ibv_sge> send_parts_;
  // Completions that post_send found while it looked for room. They keep occupying it.
  std::vector<Completion> kept_;
  std::uint64_t kept_begin_ = 0;
  std::uint64_t kept_end_ = 0;

  // The receive queue: how many are posted, and how many of these the device has; it refused the
  // others.
  alignas(64) std::size_t receives_posted_ = 0;
  std::size_t receives_on_device_ = 0;
  bool receives_abandoned_ = false;        // the device no longer reports them
  std::vector<ibv_recv_wr> receive_work_;  // a chain of receives without memory
};

}  // namespace leat::detail
