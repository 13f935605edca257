#include "transport/batched/by_requests.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "transport/batched/batched.h"
#include "transport/batched/way.h"
#include "transport/parts/requests.h"
#include "transport/slots/receiving.h"
#include "transport/slots/sending.h"

namespace leat::detail {
namespace {

// While reads find little, so many times what a read takes pass between two, and no more than that.
constexpr int kMostReadsPause = 4;
constexpr std::chrono::nanoseconds kLongestReadPause{200'000};

}  // namespace

void ByRequests::started() {
  sender_.start(kBundleShare);
  receiver_.start(DoorbellReceiver(false), nullptr);
}

// A read of `bytes` of the peer's head, from the offset `from`.
SendRequest ByRequests::read_of(std::uint64_t id, void* to, std::size_t from,
                                std::size_t bytes) const {
  SendRequest request;
  request.id = id;
  request.opcode = Opcode::kRead;
  request.local = to;
  request.bytes = bytes;
  request.local_key = end_.local_key();
  request.remote_address = end_.peer().address + from;
  request.remote_key = end_.peer().key;
  return request;
}

// --- send side

SlotRun ByRequests::find_run(Context context, unsigned count) {
  return sender_.find(context, count, [&] { look_at_given(context); });
}

// Takes in what an earlier read brought, and posts another.
void ByRequests::look_at_given(Context context) {
  if (!reading_given_) {
    const SendRequest request =
        read_of(kGivenId, &head_.peer_given_back, offsetof(BatchedHead, given_back),
                (1 + end_.layout().all_words()) * sizeof(std::uint64_t));
    if (!post_rest() || queue_.post({&request, 1}) == 0) return;
    for (unsigned at = 0; at < end_.layout().all_words(); ++at) {
      const Context owner = end_.layout().context_of_word(at);
      settled_[at] = sender_.slots(owner).busy(at - end_.layout().first_word(owner));
    }
    reading_given_ = true;
    sender_.count_look();
  }
  if (!queue_.is_over(kGivenId)) return;
  reading_given_ = false;
  sender_.take_given(head_.peer_given, context, &settled_);
}

bool ByRequests::post_unit(Context context, const SlotRun& run, SlotKind kind, std::size_t bytes) {
  const SlotLayout& layout = end_.layout();
  const unsigned slot = layout.first_slot(context) + run.first;
  sender_.look_at_limit();
  const SlotFront front{sender_.next_echo(context, run, kind, bytes)};
  const std::uint32_t doorbell = doorbell_of(slot, front.echo.header.place);
  // The peer may already read what stands behind these bytes.
  std::memcpy(end_.outgoing(context, run), &front, offsetof(SlotFront, place));

  // Only a plain message may carry its length in the doorbell.
  const bool notifies = sender_.may_notify() && kind == SlotKind::kMessage;
  std::array<SendRequest, 2> requests;
  requests[0] = end_.write_of(context, run, sizeof front + bytes);
  if (notifies) {
    requests[0].opcode = Opcode::kWriteWithImmediate;
    requests[0].immediate = doorbell;
  }
  const unsigned word = layout.first_word(context) + run.word();
  const unsigned before = std::exchange(last_in_word_[word], slot);
  requests[1] = echo_of(word);
  // The doorbell already announces this unit, so its echo is left out; a later echo carries this
  // flip too.
  const std::size_t wanted = notifies ? 1 : 2;
  const std::size_t accepted = queue_.post(std::span(requests).first(wanted));
  if (accepted == 0) {
    last_in_word_[word] = before;
    return false;
  }

  sender_.take(context, run);
  if (accepted < wanted) sender_.add_rest(requests[1]);
  if (notifies) {
    unechoed_ |= 1ULL << word;
  } else {
    unechoed_ &= ~(1ULL << word);
  }
  sender_.publish();
  pass_barrier();
  if (notifies) {
    sender_.notified();
  } else {
    sender_.look_at_limit();
    if (sender_.may_notify()) [[unlikely]]
      notify(doorbell);
  }
  // Once the allowance is used the receiver reads, and may do so before it hears what was
  // announced.
  if (unechoed_ != 0 && !sender_.may_notify()) post_echoes();
  return true;
}

// Reads the latest value of one of our bitmap's words back from where its unit was written.
SendRequest ByRequests::echo_of(unsigned word) {
  const unsigned slot = last_in_word_[word];
  const Context context = end_.layout().context_of(slot);
  const std::uint64_t at = end_.layout().offset(context, slot - end_.layout().first_slot(context));
  SendRequest request = read_of(0, &head_.echoed[word], 0, sizeof(Echo));
  request.signaled = false;
  request.remote_address = end_.peer_slots() + at + offsetof(SlotFront, echo);
  return request;
}

void ByRequests::post_echoes() {
  const SlotLayout& layout = end_.layout();
  for (; unechoed_ != 0; unechoed_ &= unechoed_ - 1) {
    const auto at = static_cast<unsigned>(std::countr_zero(unechoed_));
    const Context context = layout.context_of_word(at);
    const std::uint64_t bit = 1ULL << (last_in_word_[at] - layout.first_slot(context)) % kWordSlots;
    // The receiver that has given a slot back knows its word.
    if ((sender_.slots(context).busy(at - layout.first_word(context)) & bit) == 0) continue;
    settled_[at] &= ~bit;
    sender_.add_rest(echo_of(at));
  }
  post_rest();
}

void ByRequests::bundle_opened(Context context, const SlotRun& run) {
  const std::uint64_t place = sealed(sender_.next_place(context));
  std::memcpy(end_.outgoing(context, run) + offsetof(SlotFront, place), &place, sizeof place);
}

// The peer might see the number before messages that were written earlier, but not before what a
// finished read came behind; and behind each message comes a read.
bool ByRequests::land() {
  post_echoes();
  if (!post_rest()) return false;
  std::uint64_t word = sealed(sender_.sequence());
  SendRequest request =
      write_of_word(word, end_.peer().address + offsetof(BatchedHead, landed), end_.peer().key);
  request.fenced = true;
  return queue_.post({&request, 1}) != 0;
}

// --- receive side

bool ByRequests::look_at_filled() {
  if (pulling_) [[unlikely]]
    return take_pulled();
  if (receiver_.doorbell().reading()) return queue_.is_over(kFilledId) && take_read(false);
  if (limit_unwritten_) [[unlikely]] {
    write_limit();
    if (limit_unwritten_) return false;
  }
  if (!receiver_.should_read([this] { allow(); })) return false;
  if (!receiver_.doorbell().allowed() && pauses_.is_early()) return false;
  read_begun_ = Clock::now();
  if (!queue_.post_from_receiver(
          read_of(kFilledId, &head_.peer_posted, offsetof(BatchedHead, posted),
                  sizeof(std::uint64_t) + end_.layout().all_words() * sizeof(Echo))))
    return false;
  receiver_.begin_read();
  return queue_.is_over(kFilledId) && take_read(true);
}

// A read costs both sides, so while messages flow, and reads find but few of them, some time passes
// between two, counted in what a read takes. A read in vain is followed by the next at once,
// because then the receiver will allow doorbells.
bool ByRequests::take_read(bool quick) {
  // Relaxed: the read's completion has ordered it.
  const std::uint64_t word = std::atomic_ref(head_.peer_posted).load(std::memory_order_relaxed);
  const bool flows = word != receiver_.posted_seen();
  const std::uint32_t before = receiver_.arrived();
  const auto see_more = [&](const Posted& posted) {
    if (!flows) pull(posted);  // a sender that goes on will write the bundle itself
    return false;
  };
  const bool found = receiver_.take_read(
      BatchedReceiver::Read<BitmapEchoes>{word, head_.peer_echoed, quick}, see_more);
  const std::chrono::nanoseconds took = Clock::now() - read_begun_;
  if (!flows) {
    pauses_.stop();
  } else if (receiver_.arrived() - before >= kGoodBatch) {
    pauses_.shorten();
  } else {
    pauses_.lengthen(took, kMostReadsPause * took);
  }
  pauses_.begin(kLongestReadPause);
  return found;
}

// Reads the open bundle, which was open at the time of the read that showed it. Its slot is used
// again only after we gave it back, and so after its unit was found.
void ByRequests::pull(const Posted& posted) {
  if (end_.peer_mirror().bytes == 0) end_.nonsense("an open bundle that cannot be read");
  receiver_.drop_pulled();
  const Context context = end_.layout().context_of(posted.open_slot);
  const unsigned slot = posted.open_slot - end_.layout().first_slot(context);
  SendRequest request = read_of(kPullId, &head_.pulled_place, 0,
                                sizeof(BatchedHead::pulled_place) + posted.open_bytes);
  request.remote_address =
      end_.peer_mirror().address + end_.layout().offset(context, slot) + offsetof(SlotFront, place);
  request.remote_key = end_.peer_mirror().key;
  if (!queue_.post_from_receiver(request)) return;
  pulled_ = posted;
  places_before_pull_ = receiver_.slots(context).found_places();
  pulling_ = true;
}

bool ByRequests::take_pulled() {
  if (!queue_.is_over(kPullId)) return false;
  pulling_ = false;
  const Context context = end_.layout().context_of(pulled_.open_slot);
  const SlotReceiver& slots = receiver_.slots(context);
  // Otherwise the bundle was found closed meanwhile, and its slot may have had another since; or
  // the units before it were not found yet.
  if (slots.found_places() != places_before_pull_ || slots.has_hole() ||
      head_.pulled_place != sealed(places_before_pull_))
    return false;
  receiver_.open_pulled(pulled_, head_.pulled.data());
  return receiver_.open_waits();
}

// --- waiting

void ByRequests::allow() noexcept {
  pauses_.stop();
  receiver_.allow();
  write_limit();
}

void ByRequests::write_limit() noexcept {
  std::uint64_t word = receiver_.limit();
  limit_unwritten_ = !queue_.post_from_receiver(write_of_word(
      word, end_.peer().address + offsetof(BatchedHead, notify_limit), end_.peer().key));
  // Where requests run as they are posted, the write is a store of ours and the read that follows
  // a load: this is the full barrier between them.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  receiver_.fenced();
}

void ByRequests::arm(Side side) {
  if (side == Side::kSend) {
    queue_.arm();
    return sender_.pause_no_looks();
  }
  end_.queue_pair().arm(side);
  if (receiver_.may_allow()) allow();
}

Outlook ByRequests::outlook(Side side, Look look) const {
  if (side == Side::kSend) return {.comes = Outlook::Comes::kSilently};
  return receiver_.outlook(
      look, receiver_.is_over() || (!limit_unwritten_ && !pulling_ && receiver_.may_sleep()));
}

std::unique_ptr<Transport> make_batched_by_requests(std::unique_ptr<Device> device,
                                                    std::unique_ptr<QueuePair> queue_pair,
                                                    const SlotOptions& options) {
  return std::make_unique<SlotTransport<BatchedWay<ByRequests>>>(std::move(device),
                                                                 std::move(queue_pair), options);
}

}  // namespace leat::detail
