#include "transport/batched/send_queue.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace leat::detail {

std::size_t SharedSendQueue::post(std::span<const SendRequest> requests) {
  const std::lock_guard lock(lock_);
  return end_.post_sends(requests);
}

std::size_t SharedSendQueue::poll(std::span<Completion> completions) {
  const std::lock_guard lock(lock_);
  collect();
  const std::size_t count = std::min(completions.size(), sender_completions_.size());
  std::copy_n(sender_completions_.begin(), count, completions.begin());
  sender_completions_.erase(sender_completions_.begin(),
                            sender_completions_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

void SharedSendQueue::arm() {
  const std::lock_guard lock(lock_);
  end_.queue_pair().arm(Side::kSend);
}

bool SharedSendQueue::post_from_receiver(const SendRequest& request) noexcept {
  const std::lock_guard lock(lock_);
  const std::size_t accepted = end_.queue_pair().post_send({&request, 1});
  end_.side_requests.add(accepted);
  return accepted != 0;
}

bool SharedSendQueue::is_over(std::uint64_t read) {
  const std::lock_guard lock(lock_);
  collect();
  return std::exchange(reads_over_[read], false);
}

// Under the lock.
void SharedSendQueue::collect() {
  std::array<Completion, 16> completions;
  while (sender_completions_.size() < completions.size()) {
    const std::size_t count = end_.poll_sends(completions);
    if (count == 0) break;
    for (const Completion& completion : std::span(completions).first(count)) {
      // A read that failed is like any other request that did: it says why the queue pair is in
      // error, and what it was to bring is not here.
      if (completion.id >= kPullId && completion.status == CompletionStatus::kSuccess) {
        reads_over_[completion.id] = true;
      } else {
        sender_completions_.push_back(completion);
      }
    }
  }
}

}  // namespace leat::detail
