// A queue pair between two processes of one host. Requests run as they are posted, by copying into
// or out of the peer's mapped regions; arrivals and posted receives travel through rings in shared
// memory (layout.h).
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/counter.h"
#include "base/fd.h"
#include "base/large_copy.h"
#include "base/mapped_memory.h"
#include "verbs/arrivals.h"
#include "verbs/device.h"
#include "verbs/shm/region.h"
#include "verbs/shm/socket.h"

namespace leat::detail::shm {

// What the handshake in device.cc made for one side.
struct Endpoint {
  Fd socket;
  MappedMemory memory;
  Direction outgoing;
  Direction incoming;
  Fd own_events[2];   // by Side: notify this side
  Fd peer_events[2];  // by Side: notify the peer
  bool asymmetric_barriers = false;
  std::size_t send_depth = 0;
};

class ShmQueuePair final : public QueuePair, private RegionObserver {
 public:
  ShmQueuePair(Endpoint endpoint, std::shared_ptr<OwnRegions> own_regions);
  ~ShmQueuePair() override;

  std::size_t post_send(std::span<const SendRequest> requests) override;
  std::size_t post_receives(std::size_t count) override;
  std::size_t poll_sends(std::span<Completion> completions) override;
  std::size_t poll_receives(std::span<Completion> completions) override;
  void arm(Side side) override;
  void wake_sender() override;
  int event_fd(Side side) const override { return waits_[index(side)].get(); }
  std::byte* peer_memory(const RemoteRegion& part) override;
  Arrivals* arrivals() override { return &arrivals_; }
  std::uint64_t rnr_retries() const override { return rnr_retries_.get(); }
  std::string describe() const override;

 private:
  enum class Ran { kDone, kNoRoom, kFailed };
  static constexpr std::size_t index(Side side) { return side == Side::kSend ? 0 : 1; }

  Ran run(const SendRequest& request);
  Ran run_arrival(const SendRequest& request);
  const PeerRegion* find(std::uint64_t address, std::uint32_t key, std::size_t bytes,
                         unsigned access);
  bool local_access(const SendRequest& request) const;
  bool receive_is_posted();
  void look_at_peer();
  Ran fail(const SendRequest& request, CompletionStatus status);
  void push_failure(const Completion& completion);
  bool room_for_completion() const;
  std::size_t flush_receives(std::span<Completion> completions);
  bool peer_closed() const;
  void service_socket() noexcept;
  void enter_error() noexcept;
  void region_changed(const RegionNotice& notice, int fd) noexcept override;

  // --- set once
  const Fd socket_;
  const MappedMemory memory_;
  const Direction outgoing_;
  const Direction incoming_;
  const Fd own_events_[2];
  const Fd peer_events_[2];
  Fd waits_[2];  // epoll of the own event and of the socket's end
  const bool asymmetric_;
  const std::shared_ptr<OwnRegions> own_regions_;

  // --- send side
  alignas(kCacheLine) std::vector<Completion> done_;  // ring of successful signaled requests
  std::uint64_t done_head_ = 0;
  std::uint64_t done_tail_ = 0;
  std::uint32_t sends_since_service_ = 0;
  LargeCopy large_copy_;
  Counter rnr_retries_;

  // --- both
  Arrivals arrivals_;
  // The peer's regions by slot. Stored with release and loaded with acquire, so that a region is
  // complete.
  std::array<std::atomic<const PeerRegion*>, kMaxRegions> peer_regions_{};
  std::mutex mutex_;  // guards everything below, and reading from the socket
  std::vector<std::unique_ptr<PeerRegion>>
      mapped_;                       // keeps replaced regions, because a user may still be running
  std::deque<Completion> failures_;  // they follow all of done_
  std::atomic<bool> has_failures_{false};
};

}  // namespace leat::detail::shm
