#include "transport/batched/by_memory.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "transport/batched/batched.h"
#include "transport/batched/way.h"
#include "transport/slots/receiving.h"
#include "transport/slots/sending.h"

namespace leat::detail {
namespace {

// A blocked sender that spins polls all the time.
constexpr unsigned kPollsPerProbe = 16;
constexpr std::chrono::nanoseconds kFirstLoadPause{32};
constexpr std::chrono::nanoseconds kLongestLoadPause{4096};
// With less than one message in so much time waiting longer does not help.
constexpr std::chrono::nanoseconds kPausePerMessage{512};

}  // namespace

void ByMemory::started() {
  peer_ = reinterpret_cast<BatchedHead*>(end_.peer_head_memory());
  if (peer_ == nullptr) {
    nobody_ = std::make_unique<BatchedHead>();
    peer_ = nobody_.get();
  }
  sender_.start(kBundleShareOfSharedMemory);
  receiver_.start(DoorbellReceiver(true), head_.headers.data());
}

// --- send side

bool ByMemory::post_unit(Context context, const SlotRun& run, SlotKind kind, std::size_t bytes) {
  const SlotLayout& layout = end_.layout();
  const unsigned slot = layout.first_slot(context) + run.first;
  const std::uint32_t place = sender_.next_place(context);
  peer_->headers[slot] = sender_.next_header(context, kind, bytes);
  sender_.take(context, run);
  // Release: the slot and its header come before the flip, and that before the number, which is
  // what the receiver looks at.
  std::atomic_ref(head_.filled[layout.first_word(context) + run.word()])
      .store(sender_.slots(context).published(run.word()), std::memory_order_release);
  sender_.publish();
  pass_barrier();
  sender_.look_at_limit();
  if (sender_.may_notify()) [[unlikely]] {
    SendRequest request;
    // Only a plain message carries its length in the doorbell, so its receiver skips the header.
    if (kind == SlotKind::kMessage) request = end_.write_of(context, run, bytes);
    sender_.notify(request, doorbell_of(slot, place),
                   [this](std::span<const SendRequest> requests) { return post_sends(requests); });
  }
  fetch_ahead(context, run, bytes);
  return true;
}

// Takes the lines of a slot that comes soon from the receiver's cache, while others are filled.
void ByMemory::fetch_ahead(Context context, const SlotRun& run, std::size_t bytes) const {
  const FetchAhead ahead(bytes);
  unsigned soon = run.first + ahead.messages * run.count;
  if (soon >= end_.layout().slots(context)) soon = 0;
  const std::byte* at = end_.outgoing(context, {soon, 1});
  for (unsigned i = 0; i < ahead.lines; ++i) prefetch_for_writing(at + i * FetchAhead::kLineBytes);
  prefetch_for_writing(&peer_->headers[end_.layout().first_slot(context) + soon]);
}

bool ByMemory::land() {
  // Release: the messages come before.
  std::atomic_ref(peer_->landed).store(sealed(sender_.sequence()), std::memory_order_release);
  return true;
}

// Stores into the memory of a peer that has gone do not fail, so an empty write asks for it.
std::size_t ByMemory::poll_sends(std::span<Completion> completions) {
  if (probes_++ % kPollsPerProbe == 0) {
    SendRequest request;
    request.signaled = false;
    request.inlined = true;
    request.remote_address = end_.peer().address;
    request.remote_key = end_.peer().key;
    end_.post_sends({&request, 1});
  }
  return end_.poll_sends(completions);
}

// --- receive side

bool ByMemory::look() {
  const bool found = receiver_.look([this] { return look_at_filled(); });
  // A sender that sleeps is woken once nothing more is found: it then has most of the slots at
  // once. One whose receiver takes long over what it found looks by itself.
  if (!found && receiver_.take_gave_back()) end_.queue_pair().wake_sender();
  return found;
}

bool ByMemory::look_at_filled() {
  return receiver_.should_read([this] { allow(); }) && load_filled();
}

// Loads the number alone, until it changes. Each load takes the line away from the sender, which
// stores into it at every message; so as long as reads find little there are fewer.
bool ByMemory::load_filled() {
  if (!receiver_.doorbell().allowed() && pauses_.is_early()) return false;
  receiver_.begin_read();
  // Acquire: the bitmap, and the slots that it shows.
  const std::uint64_t word = std::atomic_ref(peer_->posted).load(std::memory_order_acquire);
  pauses_.begin(kLongestLoadPause);
  if (word == receiver_.posted_seen() && !receiver_.has_hole()) {
    receiver_.end_vain_read();
    return false;
  }
  const std::uint32_t arrived_before = receiver_.arrived();
  const std::uint64_t flips_before = receiver_.flips();
  // The bitmap is not older than the number, so if we have as many units as it says, they are all
  // that comes before the open bundle.
  const auto see_more = [&](const Posted& posted) {
    if (receiver_.arrived() != posted.units) return false;
    receiver_.open_in_place(posted);
    return true;
  };
  // The number alone shows that a bundle has grown.
  const bool has_flips =
      receiver_.has_hole() || Posted::of(word).units != Posted::of(receiver_.posted_seen()).units;
  const bool found = receiver_.take_read(
      BatchedReceiver::Read<BitmapWords>{word, peer_->filled, true, has_flips}, see_more);

  // How many messages a bundle has grown by is known at the next read.
  const auto batch = static_cast<std::uint32_t>(
      receiver_.arrived() - arrived_before + (receiver_.open_waits() ? 1 : 0) +
      receiver_.unbundled() - std::exchange(unbundled_before_, receiver_.unbundled()));
  if (receiver_.flips() - flips_before > 2 * std::uint64_t{batch}) {
    pauses_.stop();  // large messages: one is worth a read
  } else if (batch >= kGoodBatch) {
    pauses_.shorten();
  } else if (batch * kPausePerMessage <= pauses_.length() && !receiver_.doorbell().allowed() &&
             receiver_.answered()) {
    allow();  // each is an answer that is waited for: the sender is to notify us of it
  } else {
    pauses_.lengthen(kFirstLoadPause, kLongestLoadPause);
  }
  return found;
}

// --- waiting

void ByMemory::allow() noexcept {
  pauses_.stop();
  receiver_.allow();
  // Relaxed: arm() passes the barrier.
  std::atomic_ref(peer_->notify_limit).store(receiver_.limit(), std::memory_order_relaxed);
}

void ByMemory::arm(Side side) {
  end_.queue_pair().arm(side);
  if (side == Side::kSend) return sender_.pause_no_looks();
  if (receiver_.may_allow()) allow();
  if (!receiver_.doorbell().checked()) {
    heavy_barrier(end_.asymmetric_barriers());  // pairs with the peer's pass_barrier()
    receiver_.fenced();
  }
}

Outlook ByMemory::outlook(Side side, Look look) const {
  if (side == Side::kSend) return {.comes = Outlook::Comes::kMuchWithEvent};
  return receiver_.outlook(look, receiver_.is_over() || receiver_.may_sleep());
}

std::unique_ptr<Transport> make_batched_by_memory(std::unique_ptr<Device> device,
                                                  std::unique_ptr<QueuePair> queue_pair,
                                                  const SlotOptions& options) {
  return std::make_unique<SlotTransport<BatchedWay<ByMemory>>>(std::move(device),
                                                               std::move(queue_pair), options);
}

}  // namespace leat::detail
