// The receive side of transport batched: reading the sender's bitmap, being rung, giving back.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <utility>

#include "transport/batched.h"
#include "transport/requests.h"
#include "transport/slot_hot_path.h"

namespace leat::detail {
namespace {

constexpr std::uint64_t kUnread = ~std::uint64_t{0};  // as in batched.cc
// A read that finds fewer messages came too early: a longer pause before the next one. With less
// than one message in so much time waiting longer does not help.
constexpr std::uint32_t kGoodBatch = 32;
constexpr std::chrono::nanoseconds kNoPause{0};
constexpr std::chrono::nanoseconds kFirstPause{32};
constexpr std::chrono::nanoseconds kLongestPause{4096};
constexpr std::chrono::nanoseconds kPausePerMessage{512};

std::atomic_ref<std::uint64_t> atomic(std::uint64_t& word) { return std::atomic_ref(word); }

}  // namespace

ReceiveResult BatchedTransport::try_receive(Context context, Delivery& delivery) {
  return receive_by(*this, context, delivery);
}

void BatchedTransport::release(Delivery& delivery) noexcept { release_by(*this, delivery); }

bool BatchedTransport::look() {
  bool found = hear();
  found |= look_at_landed();
  if (!has_end_ && receive_error_.empty()) found |= look_at_filled();
  return found;
}

// Rings, and the end of the queue pair. True: there was something, and so may be more; who is about
// to sleep must see all, also rings for what was found already.
bool BatchedTransport::hear() {
  rode_along_ = nullptr;
  const std::size_t count = queue_pair().poll_receives(heard_);
  if (count == 0) [[likely]]
    return false;
  receive_completions_.add(count);
  for (std::size_t i = 0; i < count && receive_error_.empty(); ++i) {
    const Completion& completion = heard_[i];
    if (completion.status != CompletionStatus::kSuccess) {
      if (!has_end_)
        receive_error_ = std::string("receiving failed: ") + to_string(completion.status) + " (" +
                         queue_pair().describe() + ")";
      break;
    }
    ++used_receives_;
    if (completion.kind != CompletionKind::kImmediate) nonsense("a message without a slot");
    heard(completion);
  }
  return true;
}

// The immediate names the slot of the message for which it rang, or that it was.
void BatchedTransport::heard(const Completion& completion) {
  const std::uint32_t before = arrived_;
  const std::uint32_t immediate = completion.immediate;
  const unsigned slot = slot_of_ring(immediate);
  if (slot >= layout().all_slots()) nonsense("a ring for a slot that there is not");
  const Context context = layout().context_of(slot);
  bool known = false;
  check(receivers_[context].rang(slot - layout().first_slot(context), immediate, completion.bytes,
                                 arrived_, known));
  // If it is the only one that waits it will be handed out next.
  if (arrived_ != before && arrived_ - taken_ == 1 && layout().header_bytes() == 0)
    rode_along_ = completion.payload;
  if (!doorbell_.rang(known, answered())) nonsense("more rings than were allowed");
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
    const std::uint64_t posted = atomic(ours.peer_posted).load(std::memory_order_acquire);
    return posted != kUnread && take_filled(posted, false);
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
  if (peer() != nullptr) return load_filled();
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
  const std::uint64_t posted = atomic(ours.peer_posted).load(std::memory_order_acquire);
  return posted != kUnread && take_filled(posted, true);
}

// Where a read is a load: of the number alone, until it changes. Each takes the line away from the
// sender, which stores into it at every message; so as long as reads find little there are fewer.
bool BatchedTransport::load_filled() {
  if (pause_ != kNoPause && !doorbell_.allowed() && Clock::now() < next_read_) return false;
  doorbell_.read_posted();
  filled_reads_.add(1);
  // Acquire: the bitmap, and the slots that it speaks of.
  const std::uint64_t posted = atomic(peer()->posted).load(std::memory_order_acquire);
  if (pause_ != kNoPause) next_read_ = Clock::now() + pause_;
  if (posted == posted_seen_ && !owes()) {
    doorbell_.read_done(static_cast<std::uint32_t>(posted), arrived_, true);
    return false;
  }
  posted_seen_ = posted;
  const std::uint32_t before = arrived_;
  slots_found_ = 0;
  const bool found = take_filled(posted, true);
  const std::uint32_t batch = arrived_ - before;
  if (slots_found_ > 2 * batch) {
    pause_ = kNoPause;  // large messages: one is worth a read
  } else if (batch >= kGoodBatch) {
    pause_ /= 2;
  } else if (batch * kPausePerMessage <= pause_ && !doorbell_.allowed() && answered()) {
    allow();  // each is an answer that is waited for: let them ring
  } else {
    pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
  }
  return found;
}

bool BatchedTransport::take_filled(std::uint64_t posted, bool quick) {
  Head& ours = head();
  auto& theirs = peer() != nullptr ? peer()->filled : ours.peer_filled;
  const std::uint32_t before = arrived_;
  std::uint64_t looked_at = holes_;
  // Slots are used in turn: what was sent first is found first, where the last look ended.
  unsigned at = last_word_;
  for (unsigned left = words_; left != 0; --left, at = at + 1 == words_ ? 0 : at + 1) {
    const std::uint64_t filled =
        atomic(theirs[at]).load(std::memory_order_acquire);  // the slots, as above
    const Context context = layout().context_of_word(at);
    const unsigned word = at - layout().first_word(context);
    if (filled == receivers_[context].seen(word)) continue;
    looked_at |= 1ULL << context;
    last_word_ = at;
    slots_found_ += static_cast<unsigned>(std::popcount(filled ^ receivers_[context].seen(word)));
    check(receivers_[context].see(word, filled, arrived_));
    if ((owed_words_ >> at & 1) == 0) continue;
    if (!receivers_[context].owes(word)) owed_words_ &= ~(1ULL << at);
    // Release: we are done with those slots' bytes.
    atomic(ours.given[at]).store(receivers_[context].published(word), std::memory_order_release);
  }
  holes_ = 0;
  for (; looked_at != 0; looked_at &= looked_at - 1) {
    SlotReceiver& receiver = receivers_[static_cast<Context>(std::countr_zero(looked_at))];
    check(receiver.read_done());
    if (receiver.has_hole()) holes_ |= looked_at & -looked_at;
  }
  doorbell_.read_done(static_cast<std::uint32_t>(posted), arrived_, quick);
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

bool BatchedTransport::answered() {
  // Relaxed: only a guess at what our sending thread does.
  const std::uint64_t posted = atomic(head().posted).load(std::memory_order_relaxed);
  return std::exchange(own_posted_, posted) != posted;
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
  // All rings of the last allowance were heard, so their receives are replaced together.
  const std::array<ReceiveRequest, DoorbellReceiver::kAllowance> blank{};
  used_receives_ = std::min(used_receives_, blank.size());
  const std::size_t posted = queue_pair().post_receive(std::span(blank).first(used_receives_));
  receive_requests_.add(posted);
  used_receives_ -= posted;
  pause_ = kNoPause;
  doorbell_.allow();
  tell_limit();
}

void BatchedTransport::tell_limit() noexcept {
  std::uint64_t word = sealed(doorbell_.limit());
  if (peer() != nullptr) {
    // Relaxed: arm() passes the barrier.
    atomic(peer()->ring_limit).store(word, std::memory_order_relaxed);
    return;
  }
  limit_untold_ = post_from_receiver(write_of_word(word, peer_head() + offsetof(Head, ring_limit),
                                                   peer_key())) == 0;
  // Where requests run as they are posted, the write is a store of ours and the read that follows
  // a load: this is the full barrier between them.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  doorbell_.fenced();
}

std::size_t BatchedTransport::post_from_receiver(const SendRequest& request) noexcept {
  const std::size_t accepted = queue_pair().post_send({&request, 1});
  side_requests_.add(accepted);
  return accepted;
}

}  // namespace leat::detail
