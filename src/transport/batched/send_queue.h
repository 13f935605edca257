// The send queue of one queue pair, to which both threads of a transport post, and which both poll:
// completions of sends are the sending thread's, those of reads each belong to one that waits for
// them. A lock guards it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/spin_lock.h"
#include "transport/batched/parts.h"
#include "transport/slots/slot_end.h"

namespace leat::detail {

class SharedSendQueue {
 public:
  explicit SharedSendQueue(SlotEnd& end) : end_(end) {}

  // As QueuePair::post_send, poll_sends and arm. Send side.
  std::size_t post(std::span<const SendRequest> requests);
  std::size_t poll(std::span<Completion> completions);
  void arm();
  // Posts one request of the receive side. False: no room.
  bool post_from_receiver(const SendRequest& request) noexcept;
  // Whether the read with that id (parts.h) is over, and has succeeded; once for each. Any side.
  bool is_over(std::uint64_t read);

 private:
  void collect();

  SlotEnd& end_;
  // --- all below under the lock
  SpinLock lock_;
  std::vector<Completion> sender_completions_;
  std::array<bool, kGivenId + 1> reads_over_{};  // by id
};

}  // namespace leat::detail
