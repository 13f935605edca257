// What transport batched does only where memory is not shared: completions for both threads, and
// the receiver's reading of the messages of the sender's open bundle.
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include "transport/batched/batched.h"
#include "transport/parts/requests.h"

namespace leat::detail {

// Under send_lock_.
void BatchedTransport::collect_completions() {
  std::array<Completion, 16> completions;
  while (sender_completions_.size() < completions.size()) {
    const std::size_t count = SlotTransport::poll_sends(completions);
    if (count == 0) break;
    for (const Completion& completion : std::span(completions).first(count)) {
      // One that failed is like any other request that did: it says why the queue pair is in error,
      // and what it was to bring is not here.
      if (completion.id >= kPullId && completion.status == CompletionStatus::kSuccess) {
        reads_over_[completion.id] = true;
      } else {
        sender_completions_.push_back(completion);
      }
    }
  }
}

// Once for each.
bool BatchedTransport::is_over(std::uint64_t read) {
  const std::lock_guard lock(send_lock_);
  collect_completions();
  return std::exchange(reads_over_[read], false);
}

// What was pulled and not handed out comes once more.
void BatchedTransport::drop_open() {
  if (open_.end == 0) return;
  Unbundling& from = unbundling_[open_.context];
  if (!from.closed && from.slot == open_.slot && !from.messages.empty()) {
    uses_[from.slot].taken_bytes = static_cast<std::uint32_t>(from.messages.at());
    from.messages = {};
  }
  open_.end = 0;
}

// Reads the open bundle. At the time of the read that told of it it was open. Its slot is used
// again only after we gave it back, and so after another read showed that it was closed; and none
// is posted until this one is done.
void BatchedTransport::pull(const Posted& posted) {
  if (peer_mirror().bytes == 0) nonsense("an open bundle that cannot be read");
  drop_open();
  const Context context = layout().context_of(posted.open_slot);
  SendRequest request;
  request.id = kPullId;
  request.opcode = Opcode::kRead;
  request.local = &head().pulled_place;
  request.bytes = sizeof(Head::pulled_place) + posted.open_bytes;
  request.local_key = local_key();
  request.remote_address =
      peer_mirror().address +
      layout().offset(context, posted.open_slot - layout().first_slot(context)) +
      offsetof(SlotFront, place);
  request.remote_key = peer_mirror().key;
  if (post_from_receiver(request) == 0) return;
  pulled_ = posted;
  pulling_ = true;
}

bool BatchedTransport::take_pulled() {
  if (!is_over(kPullId)) return false;
  pulling_ = false;
  const Context context = layout().context_of(pulled_.open_slot);
  const SlotReceiver& receiver = receivers_[context];
  // Else it was found closed meanwhile, or those before it were not found yet.
  if (receiver.carries(pulled_.open_slot - layout().first_slot(context)) ||
      head().pulled_place != sealed(receiver.found_places()) || receiver.has_hole())
    return false;
  open_ = {context, pulled_.open_slot, pulled_.open_bytes};
  return open_waits(context);
}

}  // namespace leat::detail
