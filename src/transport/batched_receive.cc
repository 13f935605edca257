// The receive side of transport batched: reading the sender's bitmap, being rung, giving back.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>

#include "transport/batched.h"

namespace leat::detail {
namespace {

constexpr std::uint64_t kUnread = ~std::uint64_t{0};  // as in batched.cc

std::atomic_ref<std::uint64_t> atomic(std::uint64_t& word) { return std::atomic_ref(word); }

}  // namespace

bool BatchedTransport::look() {
  bool found = hear();
  found |= look_at_landed();
  if (!has_end_ && receive_error_.empty()) found |= look_at_filled();
  return found;
}

// Rings, and the end of the queue pair. True: there was something, and so may be more; who is about
// to sleep must see all, also rings for what was found already.
bool BatchedTransport::hear() {
  std::array<Completion, 4> completions;
  const std::size_t count = queue_pair().poll_receives(completions);
  receive_completions_.add(count);
  for (std::size_t i = 0; i < count && receive_error_.empty(); ++i) {
    const Completion& completion = completions[i];
    if (completion.status != CompletionStatus::kSuccess) {
      if (!has_end_)
        receive_error_ = std::string("receiving failed: ") + to_string(completion.status) + " (" +
                         queue_pair().describe() + ")";
      break;
    }
    const ReceiveRequest again;
    receive_requests_.add(queue_pair().post_receive({&again, 1}));
    if (completion.kind != CompletionKind::kImmediate) nonsense("a message without a slot");
    heard(completion.immediate, completion.bytes);
  }
  return count != 0;
}

// The immediate names the slot of the message for which it rang, or that it was.
void BatchedTransport::heard(std::uint32_t immediate, std::size_t bytes) {
  const unsigned slot = slot_of_ring(immediate);
  if (slot >= layout().all_slots()) nonsense("a ring for a slot that there is not");
  const Context context = layout().context_of(slot);
  bool known = false;
  check(receivers_[context].rang(slot - layout().first_slot(context), immediate, bytes, arrived_,
                                 known));
  if (!doorbell_.rang(known)) nonsense("more rings than were allowed");
  found_end();
}

// Written by the sender's flush and end.
bool BatchedTransport::look_at_landed() {
  // Acquire: the messages that it speaks of.
  const std::uint64_t word = atomic(head().landed).load(std::memory_order_acquire);
  if (word == landed_seen_) [[likely]]
    return false;
  if (!is_sealed(word)) nonsense("an impossible number of messages");
  landed_seen_ = word;
  const std::uint32_t before = arrived_;
  for (SlotReceiver& receiver : receivers_)
    check(receiver.landed(static_cast<std::uint32_t>(word >> 32), arrived_));
  found_end();
  return arrived_ != before;
}

bool BatchedTransport::look_at_filled() {
  Head& ours = head();
  if (doorbell_.reading()) {
    // Acquire: the words that came with it, and the slots that they speak of.
    if (atomic(ours.peer_posted).load(std::memory_order_acquire) == kUnread) return false;
    return take_filled(false);
  }
  if (limit_untold_) [[unlikely]]
    tell_limit();
  switch (limit_untold_ ? DoorbellReceiver::Step::kNothing : doorbell_.next(arrived_, owes())) {
    case DoorbellReceiver::Step::kNothing:
      return false;
    case DoorbellReceiver::Step::kAllow:
      allow();
      return false;
    case DoorbellReceiver::Step::kRead:
      break;
  }
  atomic(ours.peer_posted).store(kUnread, std::memory_order_relaxed);
  SendRequest request;
  request.opcode = Opcode::kRead;
  request.signaled = false;
  request.local = &ours.peer_posted;
  request.bytes = (1 + words_) * sizeof(std::uint64_t);
  request.local_key = local_key();
  request.remote_address = peer_head() + offsetof(Head, posted);
  request.remote_key = peer_key();
  if (post_from_receiver(request) == 0) return false;
  doorbell_.read_posted();
  filled_reads_.add(1);
  if (atomic(ours.peer_posted).load(std::memory_order_acquire) == kUnread) return false;
  return take_filled(true);
}

bool BatchedTransport::take_filled(bool quick) {
  Head& ours = head();
  const std::uint32_t before = arrived_;
  has_hole_ = false;
  for (Context context = 0; context < kContextCount; ++context) {
    bool flipped = false;
    for (unsigned word = 0; word < layout().words(context); ++word) {
      const unsigned at = layout().first_word(context) + word;
      const std::uint64_t filled =
          atomic(ours.peer_filled[at]).load(std::memory_order_acquire);  // the slots, as above
      if (filled == filled_seen_[at]) continue;
      filled_seen_[at] = filled;
      flipped = true;
      check(receivers_[context].see(word, filled, arrived_));
      if ((owed_words_ >> at & 1) == 0) continue;
      if (!receivers_[context].owes(word)) owed_words_ &= ~(1ULL << at);
      // Release: we are done with those slots' bytes.
      atomic(ours.given[at]).store(receivers_[context].published(word), std::memory_order_release);
    }
    if (flipped || receivers_[context].has_hole()) check(receivers_[context].read_done());
    has_hole_ |= receivers_[context].has_hole();
  }
  const auto posted = static_cast<std::uint32_t>(
      atomic(ours.peer_posted).load(std::memory_order_relaxed));  // it was acquired
  doorbell_.read_done(posted, arrived_, quick);
  confirmed_.add(arrived_ - before);
  found_end();
  return arrived_ != before;
}

void BatchedTransport::found_end() {
  const SlotReceiver& receiver = receivers_[0];
  if (has_end_ || !receiver.end()) return;
  const SlotOrder::Entry& end = *receiver.end();
  if (end.bytes != sizeof end_places_) nonsense("an odd end");
  std::memcpy(end_places_.data(), receiver.bytes_of(end.run), sizeof end_places_);
  has_end_ = true;
  // Nothing is behind it, but not all before it need be known yet: that it has landed tells.
  for (SlotReceiver& each : receivers_) check(each.landed(receiver.end_sequence(), arrived_));
}

bool BatchedTransport::ended(Context context) const {
  return has_end_ && !receivers_[context].waiting() &&
         receivers_[context].found_places() == end_places_[context];
}

void BatchedTransport::give_back(Context context, const SlotRun& run) noexcept {
  Head& ours = head();
  SlotReceiver& receiver = receivers_[context];
  const unsigned at = layout().first_word(context) + run.word();
  // Release: we are done with the slot's bytes.
  atomic(ours.given[at]).store(receiver.release(run), std::memory_order_release);
  if (receiver.owes(run.word())) owed_words_ |= 1ULL << at;
}

void BatchedTransport::check(const char* why) {
  if (why != nullptr) [[unlikely]]
    nonsense(why);
}

// --- waiting

bool BatchedTransport::may_sleep() const {
  return has_end_ || !receive_error_.empty() ||
         (!limit_untold_ && doorbell_.may_sleep(arrived_, owes()));
}

bool BatchedTransport::pending() const {
  for (Context context = 0; context < kContextCount; ++context)
    if (receivers_[context].waiting()) return true;
  return !may_sleep();
}

void BatchedTransport::allow() noexcept {
  doorbell_.allow();
  tell_limit();
}

void BatchedTransport::tell_limit() noexcept {
  std::uint64_t word = sealed(doorbell_.limit());
  SendRequest request;
  request.opcode = Opcode::kWrite;
  request.signaled = false;
  request.inlined = true;
  request.local = &word;
  request.bytes = sizeof word;
  request.remote_address = peer_head() + offsetof(Head, ring_limit);
  request.remote_key = peer_key();
  limit_untold_ = post_from_receiver(request) == 0;
  // Where requests run as they are posted, the write is a store of ours and the read that follows
  // a load: this is the full barrier between them.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

std::size_t BatchedTransport::post_from_receiver(const SendRequest& request) noexcept {
  const std::size_t accepted = queue_pair().post_send({&request, 1});
  side_requests_.add(accepted);
  return accepted;
}

}  // namespace leat::detail
