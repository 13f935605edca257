// The receive side of transport batched: reading the sender's bitmap, being rung, giving back.
#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "transport/batched/batched.h"
#include "transport/parts/requests.h"
#include "transport/slots/hot_path.h"

namespace leat::detail {
namespace {

// A read that finds fewer messages came too early: a longer pause before the next one. With less
// than one message in so much time waiting longer does not help.
constexpr std::uint32_t kGoodBatch = 32;
constexpr std::chrono::nanoseconds kNoPause{0};
constexpr std::chrono::nanoseconds kFirstPause{32};
constexpr std::chrono::nanoseconds kLongestPause{4096};
constexpr std::chrono::nanoseconds kPausePerMessage{512};
// Where reads are requests: so many times what a read takes, and no more than that.
constexpr int kMostReadsPause = 4;
constexpr std::chrono::nanoseconds kLongestReadPause{200'000};

}  // namespace

ReceiveResult BatchedTransport::try_receive(Context context, Delivery& delivery) {
  return receive_by(*this, context, delivery);
}

// A ticket without a count of slots is of a message in a bundle.
void BatchedTransport::release(Delivery& delivery) noexcept {
  if (static_cast<std::uint32_t>(delivery.ticket) != 0) return release_by(*this, delivery);
  const auto slot = static_cast<unsigned>(delivery.ticket >> 32);
  BundleUse& use = uses_[slot];
  if (--use.held != 0 || !use.done) return;
  use.done = false;
  give_back(delivery.context, {slot - layout().first_slot(delivery.context), 1});
}

// --- bundles

// The next message of what is told of a bundle. False: there is none, or first comes another unit.
bool BatchedTransport::hand_out_bundled(Context context, Delivery& delivery) {
  Unbundling& from = unbundling_[context];
  if (from.messages.empty()) {
    if (!open_waits(context) || receivers_[context].waiting()) return false;
    check_whole(context);
    from = {{open_bytes(), uses_[open_.slot].taken_bytes, open_.end}, open_.slot, false};
  }
  std::span<const std::byte> message;
  if (!from.messages.next(message)) nonsense("messages that are longer than their bundle");
  if (message.size() > max_message_bytes()) [[unlikely]]
    refuse_length(message.size());
  ++unbundled_;
  delivery.context = context;
  delivery.bytes = message.size();
  delivery.must_release = false;
  delivery.data = nullptr;
  if (message.size() <= Delivery::kSmallBytes) {
    // Senders leave room for that behind a short one.
    if (from.messages.at() + Delivery::kSmallBytes <= bundle_room_[context != 0]) [[likely]] {
      std::memcpy(delivery.small.data(), message.data(), Delivery::kSmallBytes);
    } else {
      std::copy(message.begin(), message.end(), delivery.small.begin());
    }
  } else if (peer() != nullptr || from.closed) [[likely]] {
    delivery.data = message.data();
    delivery.must_release = true;
    delivery.ticket = std::uint64_t{from.slot} << 32;
    ++uses_[from.slot].held;
  } else {  // the next pull lands in the same place
    delivery.heap = std::make_unique_for_overwrite<std::byte[]>(message.size());
    std::copy(message.begin(), message.end(), delivery.heap.get());
    delivery.data = delivery.heap.get();
  }
  if (from.messages.empty()) bundle_handed_out(context);
  return true;
}

void BatchedTransport::bundle_handed_out(Context context) {
  const Unbundling& from = unbundling_[context];
  BundleUse& use = uses_[from.slot];
  if (!from.closed) {
    use.taken_bytes = static_cast<std::uint32_t>(from.messages.at());
    return;
  }
  use.taken_bytes = 0;
  if (use.held != 0) {
    use.done = true;
  } else {
    give_back(context, {from.slot - layout().first_slot(context), 1});
  }
}

// Goes on where it was while the bundle was open.
void BatchedTransport::begin_bundle(Context context, const SlotOrder::Entry& entry) {
  const unsigned slot = layout().first_slot(context) + entry.run.first;
  const std::uint32_t taken = uses_[slot].taken_bytes;
  if (entry.bytes > bundle_room_[context != 0] || entry.bytes == 0 || entry.bytes < taken)
    nonsense("a bundle of impossible size");
  if (open_.slot == slot) open_.end = 0;
  unbundling_[context] = {
      {receivers_[context].bytes_of(entry.run), taken, entry.bytes}, slot, true};
  if (unbundling_[context].messages.empty()) bundle_handed_out(context);
}

const std::byte* BatchedTransport::open_bytes() {
  if (peer() == nullptr) return head().pulled.data();
  return receivers_[open_.context].bytes_of({open_.slot - layout().first_slot(open_.context), 1});
}

// What the sender's number tells of its open bundle, once the bitmap that came with it was seen.
// False: there is more in it than we have.
//
// Where memory is shared that bitmap is not older than the number, so if we have as many units as
// it says, they are all before the bundle.
bool BatchedTransport::see_open(std::uint64_t word) {
  const Posted posted = Posted::of(word);
  if (posted.open_bytes == 0) return true;
  if (posted.open_slot >= layout().all_slots()) nonsense("an open bundle in no slot");
  const Context context = layout().context_of(posted.open_slot);
  if (posted.open_bytes > bundle_room_[context != 0]) nonsense("an open bundle beyond its slot");
  if (receivers_[context].carries(posted.open_slot - layout().first_slot(context)))
    return true;  // it is closed by now
  if (open_.end != 0 && open_.slot == posted.open_slot && open_.end >= posted.open_bytes)
    return true;
  if (peer() != nullptr) {
    if (arrived_ != posted.units) return false;
    open_ = {context, posted.open_slot, posted.open_bytes};
    return true;
  }
  // A sender that goes on will write it itself.
  if (word == posted_seen_) pull(posted);
  return false;
}

// --- what has come

bool BatchedTransport::look() {
  // What was rung for is handed out before anything else is looked at; the caller comes again. Not
  // so the end of the queue pair: what landed before it still counts, as does a ring before it.
  const bool heard = hear();
  if (heard && receive_error_.empty()) return true;
  bool found = look_at_landed();
  if (!has_end_ && receive_error_.empty()) found |= look_at_filled();
  if (!found && room_untold_) tell_room();
  return heard || found;
}

// Rings, and the end of the queue pair. True: there was something, and there may be more. A
// receiver that is about to sleep must see all, also rings for what was found already.
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
        receive_error_.set(ErrorCode::kPeerDied,
                           failure("receiving", completion.status, queue_pair()));
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
  note_newest(context);
  doorbell_.told(newest_);
  // It rang for nothing new: for room.
  if (arrived_ == before && owed_words_ != 0) doorbell_.hurry();
  found_end();
}

// Written by the sender's flush and end.
bool BatchedTransport::look_at_landed() {
  // Acquire: the messages that it speaks of.
  const std::uint64_t word = std::atomic_ref(head().landed).load(std::memory_order_acquire);
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
  if (pulling_) [[unlikely]]
    return take_pulled();
  if (doorbell_.reading()) return is_over(kFilledId) && take_read(false);
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
  if (pause_ != kNoPause && !doorbell_.allowed() && Clock::now() < next_read_) return false;
  read_begun_ = Clock::now();
  SendRequest request;
  request.id = kFilledId;
  request.opcode = Opcode::kRead;
  request.local = &ours.peer_posted;
  request.bytes = (1 + words_) * sizeof(std::uint64_t);
  request.local_key = local_key();
  request.remote_address = peer_head() + offsetof(Head, posted);
  request.remote_key = peer_key();
  if (post_from_receiver(request) == 0) return false;
  doorbell_.read_posted();
  filled_reads_.add(1);
  return is_over(kFilledId) && take_read(true);
}

// Where a read is a request. It costs both sides, so while messages flow, and reads find but few of
// them, some time passes between two, counted in what a read takes. One in vain is followed at
// once, as the next thing then is to ask for rings.
bool BatchedTransport::take_read(bool quick) {
  // Relaxed: its completion has ordered it.
  const std::uint64_t posted = std::atomic_ref(head().peer_posted).load(std::memory_order_relaxed);
  const bool flows = posted != posted_seen_;
  const std::uint32_t before = arrived_;
  const bool found = take_filled(posted, quick);
  const auto now = Clock::now();
  const std::chrono::nanoseconds took = now - read_begun_;
  if (!flows) {
    pause_ = kNoPause;
  } else if (arrived_ - before >= kGoodBatch) {
    pause_ /= 2;
  } else {
    pause_ = std::clamp<std::chrono::nanoseconds>(2 * pause_, took, kMostReadsPause * took);
  }
  next_read_ = now + std::min<std::chrono::nanoseconds>(pause_, kLongestReadPause);
  return found;
}

// Where a read is a load: of the number alone, until it changes. Each takes the line away from the
// sender, which stores into it at every message; so as long as reads find little there are fewer.
bool BatchedTransport::load_filled() {
  if (pause_ != kNoPause && !doorbell_.allowed() && Clock::now() < next_read_) return false;
  doorbell_.read_posted();
  filled_reads_.add(1);
  // Acquire: the bitmap, and the slots that it speaks of.
  const std::uint64_t posted = std::atomic_ref(peer()->posted).load(std::memory_order_acquire);
  if (pause_ != kNoPause) next_read_ = Clock::now() + pause_;
  if (posted == posted_seen_ && !owes()) {
    doorbell_.read_done(doorbell_.posted(), arrived_, true);
    return false;
  }
  const std::uint32_t before = arrived_;
  slots_found_ = 0;
  const bool found = take_filled(posted, true);
  // Of what a bundle has grown it is known at the next read how many messages that were.
  const auto batch =
      static_cast<std::uint32_t>(arrived_ - before + (open_waits(open_.context) ? 1 : 0) +
                                 unbundled_ - std::exchange(unbundled_before_, unbundled_));
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
  const bool grew = posted != posted_seen_;
  // Where memory is shared the number alone tells that a bundle has grown.
  const bool has_news =
      peer() == nullptr || owes() || Posted::of(posted).units != Posted::of(posted_seen_).units;
  std::uint64_t looked_at = holes_;
  // Slots are used in turn: what was sent first is found first, where the last look ended.
  unsigned at = last_word_;
  for (unsigned left = has_news ? words_ : 0; left != 0;
       --left, at = at + 1 == words_ ? 0 : at + 1) {
    const std::uint64_t filled =
        std::atomic_ref(theirs[at]).load(std::memory_order_acquire);  // the slots, as above
    const Context context = layout().context_of_word(at);
    const unsigned word = at - layout().first_word(context);
    if (filled == receivers_[context].seen(word)) continue;
    looked_at |= 1ULL << context;
    last_word_ = at;
    const int slots = std::popcount(filled ^ receivers_[context].seen(word));
    slots_found_ += static_cast<unsigned>(slots);
    slots_ever_ += static_cast<unsigned>(slots);
    check(receivers_[context].see(word, filled, arrived_));
    if ((owed_words_ >> at & 1) == 0) continue;
    if (!receivers_[context].owes(word)) owed_words_ &= ~(1ULL << at);
    // Release: we are done with those slots' bytes.
    std::atomic_ref(ours.given[at])
        .store(receivers_[context].published(word), std::memory_order_release);
  }
  holes_ = 0;
  for (; looked_at != 0; looked_at &= looked_at - 1) {
    const auto context = static_cast<Context>(std::countr_zero(looked_at));
    SlotReceiver& receiver = receivers_[context];
    note_newest(context);
    check(receiver.read_done());
    if (receiver.has_hole()) holes_ |= looked_at & -looked_at;
  }
  const bool complete = see_open(posted);
  // A unit that is not there yet stands for what is missing of the open one.
  doorbell_.read_done(complete ? Posted::of(posted).units : arrived_ + 1, arrived_, quick, grew);
  doorbell_.told(newest_);
  posted_seen_ = posted;
  confirmed_.add(arrived_ - before);
  found_end();
  return arrived_ != before || (grew && complete);
}

// One before it may be missing, in another context, of which nothing but a late flip tells.
void BatchedTransport::note_newest(Context context) {
  const std::uint32_t newest = receivers_[context].newest();
  if (static_cast<std::int32_t>(newest - newest_) > 0) newest_ = newest;
  if (static_cast<std::int32_t>(newest_ - arrived_) > static_cast<int>(layout().all_slots()))
    nonsense("a slot with an impossible sequence number");
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
  return has_end_ && !waiting(context) &&
         receivers_[context].found_places() == end_places_[context];
}

void BatchedTransport::give_back(Context context, const SlotRun& run) noexcept {
  Head& ours = head();
  SlotReceiver& receiver = receivers_[context];
  const unsigned at = layout().first_word(context) + run.word();
  // Release: we are done with the slot's bytes.
  std::atomic_ref(ours.given[at]).store(receiver.release(run), std::memory_order_release);
  if (receiver.owes(run.word())) owed_words_ |= 1ULL << at;
  room_untold_ = true;
}

// A sender that sleeps is woken once nothing more is found: it then has most of the slots at once.
// One whose receiver takes long over what it found looks by itself.
void BatchedTransport::tell_room() noexcept {
  room_untold_ = false;
  if (peer() != nullptr) queue_pair().wake_sender();
}

bool BatchedTransport::answered() {
  // Relaxed: only a guess at what our sending thread does.
  const std::uint64_t posted = std::atomic_ref(head().posted).load(std::memory_order_relaxed);
  return std::exchange(own_posted_, posted) != posted;
}

void BatchedTransport::check(const char* why) {
  if (why != nullptr) [[unlikely]]
    nonsense(why);
}

// --- waiting

bool BatchedTransport::may_sleep() const {
  return has_end_ || !receive_error_.empty() ||
         (!limit_untold_ && !pulling_ && holes_ == 0 &&
          doorbell_.may_sleep(arrived_, owed_words_ != 0));
}

Outlook BatchedTransport::outlook(Side side, Look look) const {
  using enum Outlook::Comes;
  if (side == Side::kSend)
    return {.comes = peer() != nullptr ? kMuchWithEvent : kSilently, .soon = took_part()};
  Outlook outlook;
  if (!may_sleep()) outlook = {.comes = kSilently, .soon = true};
  if (look == Look::kThorough)
    for (Context context = 0; context < kContextCount && !outlook.soon; ++context)
      outlook.soon = waiting(context);
  outlook.found = {confirmed_.get() + unbundled_, slots_ever_ * 8 / layout().slots(0)};
  return outlook;
}

void BatchedTransport::allow() noexcept {
  // All rings of the last allowance were heard, so their receives are replaced together.
  used_receives_ = std::min<std::size_t>(used_receives_, DoorbellReceiver::kAllowance);
  const std::size_t posted = queue_pair().post_receives(used_receives_);
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
    std::atomic_ref(peer()->ring_limit).store(word, std::memory_order_relaxed);
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
  std::unique_lock lock(send_lock_, std::defer_lock);
  if (peer() == nullptr) lock.lock();
  const std::size_t accepted = queue_pair().post_send({&request, 1});
  side_requests_.add(accepted);
  return accepted;
}

}  // namespace leat::detail
