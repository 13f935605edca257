#include "transport/batched/receiver.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>

#include "leat/error.h"
#include "transport/parts/requests.h"

namespace leat::detail {
namespace {

// For doorbells and the end.
constexpr std::size_t kReceives = 2 * DoorbellReceiver::kAllowance;

static_assert(kMaxSlotWords <= 64);

}  // namespace

BatchedReceiver::BatchedReceiver(SlotEnd& end)
    : end_(end), head_(*reinterpret_cast<BatchedHead*>(end.head())) {
  post_all_receives(end.queue_pair(), kReceives);
}

void BatchedReceiver::start(const DoorbellReceiver& doorbell, SlotHeader* headers) {
  doorbell_ = doorbell;
  for (Context context = 0; context < kContextCount; ++context)
    receivers_[context] =
        SlotReceiver(end_.layout(), context, end_.slots(), end_.header_key(), headers);
  for (const Context context : {0U, 1U})
    bundle_room_[context] = Bundled::room(end_.layout().run_bytes(context, 1));
  uses_.resize(end_.layout().all_slots());
}

// --- bundles

void BatchedReceiver::begin_open_bundle(Context context) {
  unbundling_[context] = {
      {open_.bytes, uses_[open_.slot].taken_bytes, open_.end}, open_.slot, false, open_.stays};
}

void BatchedReceiver::bundle_handed_out(Context context) {
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
    give_back(context, {from.slot - end_.layout().first_slot(context), 1});
  }
}

// Goes on where it was while the bundle was open.
void BatchedReceiver::begin_bundle(Context context, const SlotOrder::Entry& entry) {
  const unsigned slot = end_.layout().first_slot(context) + entry.run.first;
  const std::uint32_t taken = uses_[slot].taken_bytes;
  if (entry.bytes > bundle_room_[context != 0] || entry.bytes == 0 || entry.bytes < taken)
    end_.nonsense("a bundle of impossible size");
  if (open_.slot == slot) open_.end = 0;
  unbundling_[context] = {
      {receivers_[context].bytes_of(entry.run), taken, entry.bytes}, slot, true, true};
  if (unbundling_[context].messages.empty()) bundle_handed_out(context);
}

void BatchedReceiver::release_bundled(Delivery& delivery) noexcept {
  const auto slot = static_cast<unsigned>(delivery.ticket >> 32);
  BundleUse& use = uses_[slot];
  if (--use.held != 0 || !use.done) return;
  use.done = false;
  give_back(delivery.context, {slot - end_.layout().first_slot(delivery.context), 1});
}

// Whether the sender's word shows more of its open bundle than we know. The bitmap that came with
// the word was taken in before.
bool BatchedReceiver::shows_more(const Posted& posted) {
  if (posted.open_bytes == 0) return false;
  if (posted.open_slot >= end_.layout().all_slots()) end_.nonsense("an open bundle in no slot");
  const Context context = end_.layout().context_of(posted.open_slot);
  if (posted.open_bytes > bundle_room_[context != 0])
    end_.nonsense("an open bundle beyond its slot");
  // A later unit, or one that lies in that slot, means that the bundle was closed since.
  if (static_cast<std::int32_t>(newest_ - posted.units) > 0 ||
      receivers_[context].carries(posted.open_slot - end_.layout().first_slot(context)))
    return false;
  return open_.end == 0 || open_.slot != posted.open_slot || open_.end < posted.open_bytes;
}

void BatchedReceiver::open_in_place(const Posted& posted) {
  const Context context = end_.layout().context_of(posted.open_slot);
  const SlotRun run{posted.open_slot - end_.layout().first_slot(context), 1};
  open_ = {context, posted.open_slot, posted.open_bytes, receivers_[context].bytes_of(run), true};
}

void BatchedReceiver::open_pulled(const Posted& posted, const std::byte* pulled) {
  const Context context = end_.layout().context_of(posted.open_slot);
  open_ = {context, posted.open_slot, posted.open_bytes, pulled, false};
}

void BatchedReceiver::drop_pulled() {
  if (open_.end == 0) return;
  Unbundling& from = unbundling_[open_.context];
  if (!from.closed && from.slot == open_.slot && !from.messages.empty()) {
    uses_[from.slot].taken_bytes = static_cast<std::uint32_t>(from.messages.at());
    from.messages = {};
  }
  open_.end = 0;
}

// --- what has come

// Takes doorbells, and the end of the queue pair. True: there was something, and there may be more.
// A receiver that is about to sleep must see all, also doorbells for what was found already.
bool BatchedReceiver::hear() {
  rode_along_ = nullptr;
  const std::size_t count = end_.queue_pair().poll_receives(heard_);
  if (count == 0) [[likely]]
    return false;
  end_.receive_completions.add(count);
  for (std::size_t i = 0; i < count && end_.receive_error.empty(); ++i) {
    const Completion& completion = heard_[i];
    if (completion.status != CompletionStatus::kSuccess) {
      if (!has_end_)
        end_.receive_error.set(ErrorCode::kPeerDied,
                               failure("receiving", completion.status, end_.queue_pair()));
      break;
    }
    ++used_receives_;
    if (completion.kind != CompletionKind::kImmediate) end_.nonsense("a message without a slot");
    take_doorbell(completion);
  }
  return true;
}

// The immediate names the slot of the unit that the doorbell announces, or that it came with.
void BatchedReceiver::take_doorbell(const Completion& completion) {
  const SlotLayout& layout = end_.layout();
  const std::uint32_t before = arrived_;
  const std::uint32_t immediate = completion.immediate;
  const unsigned slot = slot_of_doorbell(immediate);
  if (slot >= layout.all_slots()) end_.nonsense("a doorbell for a slot that does not exist");
  const Context context = layout.context_of(slot);
  bool known = false;
  check(receivers_[context].notified(slot - layout.first_slot(context), immediate, completion.bytes,
                                     arrived_, known));
  // If it is the only one that waits it will be handed out next.
  if (arrived_ != before && arrived_ - taken_ == 1 && layout.header_bytes() == 0)
    rode_along_ = completion.payload;
  if (!doorbell_.notified(known, answered())) end_.nonsense("more doorbells than were allowed");
  note_newest(context);
  doorbell_.learned(newest_);
  found_end();
}

// The sender's flush and end write that number.
bool BatchedReceiver::look_at_landed() {
  // Acquire: the messages up to that number.
  const std::uint64_t word = std::atomic_ref(head_.landed).load(std::memory_order_acquire);
  if (word == landed_seen_) [[likely]]
    return false;
  if (!is_sealed(word)) end_.nonsense("an impossible number of messages");
  landed_seen_ = word;
  const std::uint32_t before = arrived_;
  for (Context context = 0; context < kContextCount; ++context) {
    check(receivers_[context].landed(number_in(word), arrived_));
    note_newest(context);
  }
  found_end();
  return arrived_ != before;
}

namespace {

// Acquire: the slots that are filled.
std::uint64_t copy_of(std::uint64_t& theirs) {
  return std::atomic_ref(theirs).load(std::memory_order_acquire);
}
// The completion of the read that brought it has ordered it.
const Echo& copy_of(const Echo& theirs) { return theirs; }

}  // namespace

template <typename Words>
void BatchedReceiver::take_filled(Words& theirs) {
  const SlotLayout& layout = end_.layout();
  const unsigned words = layout.all_words();
  std::uint64_t looked_at = holes_;
  // Slots are used in turn: what was sent first is found first, where the last look ended.
  unsigned at = last_word_;
  for (unsigned left = words; left != 0; --left, at = at + 1 == words ? 0 : at + 1) {
    const auto filled = copy_of(theirs[at]);
    const Context context = layout.context_of_word(at);
    const unsigned word = at - layout.first_word(context);
    SlotReceiver& receiver = receivers_[context];
    if (receiver.tells_nothing(word, filled)) continue;
    looked_at |= 1ULL << context;
    last_word_ = at;
    const std::uint64_t before = receiver.seen(word);
    check(receiver.see(word, filled, arrived_));
    flips_ += static_cast<unsigned>(std::popcount(before ^ receiver.seen(word)));
  }
  holes_ = 0;
  for (; looked_at != 0; looked_at &= looked_at - 1) {
    const auto context = static_cast<Context>(std::countr_zero(looked_at));
    SlotReceiver& receiver = receivers_[context];
    note_newest(context);
    if constexpr (std::is_same_v<Words, BitmapWords>) check(receiver.look_done());
    if (receiver.has_hole()) holes_ |= looked_at & -looked_at;
  }
}

template void BatchedReceiver::take_filled(BitmapWords& theirs);
template void BatchedReceiver::take_filled(BitmapEchoes& theirs);

bool BatchedReceiver::end_read(std::uint64_t posted, bool quick, std::uint32_t before,
                               bool complete) {
  const bool grew = posted != posted_seen_;
  // Where the open bundle has more than we know, one unit that has not arrived stands for that.
  doorbell_.read_done(complete ? Posted::of(posted).units : arrived_ + 1, arrived_, quick, grew);
  doorbell_.learned(newest_);
  posted_seen_ = posted;
  confirmed_.add(arrived_ - before);
  found_end();
  return arrived_ != before || (grew && complete);
}

// One before it may be missing in another context, which nothing but a late flip will show.
void BatchedReceiver::note_newest(Context context) {
  const std::uint32_t newest = receivers_[context].newest();
  if (static_cast<std::int32_t>(newest - newest_) > 0) newest_ = newest;
  if (static_cast<std::int32_t>(newest_ - arrived_) > static_cast<int>(end_.layout().all_slots()))
    end_.nonsense("a slot with an impossible sequence number");
}

void BatchedReceiver::found_end() {
  const SlotReceiver& receiver = receivers_[0];
  if (has_end_ || !receiver.end()) return;
  const SlotOrder::Entry& end = *receiver.end();
  if (end.bytes != sizeof end_places_) end_.nonsense("an odd end");
  std::memcpy(end_places_.data(), receiver.bytes_of(end.run), sizeof end_places_);
  has_end_ = true;
  // Nothing is behind it, but not all before it need be known yet. As the end has landed, they
  // have.
  for (SlotReceiver& each : receivers_) check(each.landed(receiver.end_sequence(), arrived_));
}

bool BatchedReceiver::ended(Context context) const {
  return has_end_ && !waiting(context) &&
         receivers_[context].found_places() == end_places_[context];
}

void BatchedReceiver::give_back(Context context, const SlotRun& run) noexcept {
  SlotReceiver& receiver = receivers_[context];
  const unsigned at = end_.layout().first_word(context) + run.word();
  // Release: we are done with the slot's bytes.
  std::atomic_ref(head_.given[at]).store(receiver.release(run), std::memory_order_release);
  gave_back_ = true;
}

// --- waiting

void BatchedReceiver::allow() noexcept {
  // All doorbells of the last allowance have come, so their receives are replaced together.
  used_receives_ = std::min<std::size_t>(used_receives_, DoorbellReceiver::kAllowance);
  const std::size_t posted = end_.queue_pair().post_receives(used_receives_);
  end_.receive_requests.add(posted);
  used_receives_ -= posted;
  doorbell_.allow();
}

bool BatchedReceiver::answered() {
  // Relaxed: only a guess at what our sending thread does.
  const std::uint64_t posted = std::atomic_ref(head_.posted).load(std::memory_order_relaxed);
  return std::exchange(own_posted_, posted) != posted;
}

Outlook BatchedReceiver::outlook(Look look, bool may_sleep) const {
  Outlook outlook;
  if (!may_sleep) outlook = {.comes = Outlook::Comes::kSilently, .soon = true};
  if (look == Look::kThorough)
    for (Context context = 0; context < kContextCount && !outlook.soon; ++context)
      outlook.soon = waiting(context);
  outlook.found = {confirmed_.get() + unbundled_, flips_ * 8 / end_.layout().slots(0)};
  return outlook;
}

}  // namespace leat::detail
