// QueuePair on libibverbs.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/spin_lock.h"
#include "verbs/device.h"
#include "verbs/ib_cm.h"
#include "verbs/ib_handle.h"
#include "verbs/ib_rnr_counter.h"

namespace leat::detail {

// What the queue pairs of one opened device share. The device owns it and outlives them.
struct IbDomain {
  std::string verbs_name;  // "mlx5_0"
  std::string where;       // "mlx5_0:1", for errors
  unsigned port = 1;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  Limits limits;
  ibv_mtu mtu = IBV_MTU_1024;
  std::uint8_t reads = 0;  // outstanding on one queue pair, each way
};

// Owned by the transport. Threads: as QueuePair says. The send queue is behind a spin lock, because
// the receiving thread may post to it; the receive queue has no lock.
//
// The hot path neither throws nor logs. A verbs call that fails there moves the queue pair to
// error; requests that the device then refuses, which it should not, complete here, in order, as
// flushed.
class IbQueuePair final : public QueuePair {
 public:
  // One less than the most, which rxe takes for "without end".
  static constexpr std::uint8_t kRetries = 6;
  static constexpr std::uint8_t kRnrRetries = 7;  // without end

  // Not connected yet. Throws kResource.
  IbQueuePair(const IbDomain& domain, const QueueDepths& depths);
  ~IbQueuePair() override;
  IbQueuePair(const IbQueuePair&) = delete;
  IbQueuePair& operator=(const IbQueuePair&) = delete;

  // --- connecting, in this order
  std::uint32_t number() const noexcept { return queue_pair_->qp_num; }
  // Both directions ready, as `id` has agreed with the peer, with packets of at most `peer_mtu`.
  void make_ready(rdma_cm_id* id, ibv_mtu peer_mtu);
  // Takes over the connection, to see and say its end.
  void connected(CmChannel channel, CmId id);

  std::size_t post_send(std::span<const SendRequest> requests) override;
  std::size_t post_receive(std::span<const ReceiveRequest> requests) override;
  std::size_t poll_sends(std::span<Completion> completions) override;
  std::size_t poll_receives(std::span<Completion> completions) override;
  void arm(Side which) override;
  int event_fd(Side which) const override;
  std::byte* peer_memory(const RemoteRegion& part) override;
  std::uint64_t rnr_retries() const override { return rnr_counter_.get(); }
  std::string describe() const override;

 private:
  // Decides when a side that polls in vain looks at the connection: a system call, so rarely.
  class IdleCheck {
   public:
    bool due();

   private:
    unsigned empty_polls_ = 0;
    Clock::time_point next_{};
  };

  // A completion queue with what it takes to sleep on it.
  struct CompletionSide {
    CompletionSide(const IbDomain& domain, std::size_t depth);
    IbChannelHandle channel;
    IbQueueHandle queue;
    Fd sleep;  // epoll of `channel` and of the connection's events
    IdleCheck idle;
  };

  // One entry of the send queue from its post to its completion.
  struct Slot {
    std::uint64_t id;
    std::uint32_t bytes;
    Opcode opcode;
    bool signaled;            // the user wants a completion also for success
    CompletionStatus reason;  // of a failure that the device cannot name; else kSuccess
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
  std::size_t flush_receives(std::span<Completion> completions);

  // --- the end of the connection; any thread
  void fail() noexcept;
  void move_to_error() noexcept;
  void look_for_disconnect();

  const IbDomain& domain_;
  const MadeHere made_here_;
  const IbRnrCounter rnr_counter_;

  // The connection. Declared first: it outlives the queue pair, whose number it holds.
  std::optional<CmChannel> cm_channel_;
  CmId cm_id_;
  SpinLock cm_lock_;
  std::string description_;  // all but the state
  std::atomic<bool> failed_{false};
  std::atomic<bool> peer_gone_{false};  // set before failed_

  std::size_t send_depth_;
  std::size_t receive_depth_;
  CompletionSide sends_;
  CompletionSide receives_;
  IbQueuePairHandle queue_pair_;

  // The send queue. Sequence numbers count requests; those in [done_, posted_) are under way.
  alignas(64) SpinLock send_lock_;
  std::uint64_t done_ = 0;
  std::uint64_t posted_ = 0;
  std::size_t unsignaled_ = 0;  // since the last request that the device will report
  bool send_failure_told_ = false;
  bool sends_abandoned_ = false;  // the device refused one: all complete here
  std::uint64_t send_mask_ = 0;
  std::vector<Slot> slots_;
  std::vector<ibv_send_wr> send_work_;
  std::vector<ibv_sge> send_parts_;
  // Completions that post_send found while it looked for room. They keep their room.
  std::vector<Completion> kept_;
  std::uint64_t kept_begin_ = 0;
  std::uint64_t kept_end_ = 0;

  // The receive queue: how many requests the device has, and the ids of those it refused.
  alignas(64) std::size_t receives_on_device_ = 0;
  std::vector<ibv_recv_wr> receive_work_;
  std::vector<ibv_sge> receive_parts_;
  std::uint64_t receive_mask_ = 0;
  std::vector<std::uint64_t> refused_receives_;
  std::uint64_t refused_begin_ = 0;
  std::uint64_t refused_end_ = 0;
};

}  // namespace leat::detail
