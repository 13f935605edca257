#include "transport/batched/batched.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/asymmetric_barrier.h"
#include "base/prefetch.h"
#include "transport/parts/requests.h"
#include "transport/slots/hot_path.h"

namespace leat::detail {
namespace {

// The sender's next messages in a bundle are stored so far behind the line that is fetched.
constexpr std::size_t kBundleAhead = 512;
// A blocked sender that spins polls all the time.
constexpr unsigned kPollsPerProbe = 16;
// Of what must go at once though the send queue is full. It is that for as long as the device takes
// for a request, unless the peer is of bad will: then the rest goes at our next call.
constexpr unsigned kMostTriesAtOnce = 4096;
// For rings and the end.
constexpr std::size_t kReceives = 2 * DoorbellReceiver::kAllowance;
// Most words that are left unread between two looks of a blocked sender.
constexpr unsigned kMostSkippedLooks = 32;

static_assert(kMaxSlotWords <= 64);

}  // namespace

BatchedTransport::BatchedTransport(std::unique_ptr<Device> device,
                                   std::unique_ptr<QueuePair> queue_pair,
                                   const SlotOptions& options)
    : SlotTransport("batched", std::move(device), std::move(queue_pair), options, sizeof(Head),
                    sizeof(SlotFront), true) {
  post_all_receives(this->queue_pair(), kReceives);
}

void BatchedTransport::started(std::uint64_t peer_key) {
  peer_header_key_ = peer_key;
  words_ = layout().all_words();
  doorbell_ = DoorbellReceiver(peer() != nullptr);
  for (Context context = 0; context < kContextCount; ++context) {
    senders_[context] = ConfirmSender(layout().slots(context));
    receivers_[context] = SlotReceiver(layout(), context, slots(), own_key(),
                                       shares_memory() ? head().headers.data() : nullptr);
    look_below_[context] = layout().slots(context) * options().confirm_threshold / 100;
  }
  uses_.resize(layout().all_slots());
  const std::size_t share = peer() != nullptr ? kBundleShareOfSharedMemory : kBundleShare;
  for (const Context context : {0U, 1U}) {
    const std::size_t run_bytes = layout().run_bytes(context, 1);
    bundle_room_[context] = Bundled::room(run_bytes);
    if (bundle_room_[context] >= kLeastBundleBytes && (peer() != nullptr || has_mirror()))
      too_long_to_bundle_[context] =
          std::min(bundle_room_[context] / share - Bundled::kHeadBytes, max_message_bytes()) + 1;
  }
}

// --- send side

SendResult BatchedTransport::try_send(std::span<const std::byte> message, Context context) {
  // A receiver that waits is told of each at once.
  if (message.size() < too_long_to_bundle_[context != 0] && !bell_.may_ring() && !occupied(context))
      [[likely]]
    return whole_or_not(append(message, context));
  return send_by(*this, message, context);
}

std::optional<SlotRun> BatchedTransport::find_run(Context context, unsigned count) {
  if (!close_bundle()) return std::nullopt;
  return find_free(context, count);
}

std::optional<SlotRun> BatchedTransport::find_free(Context context, unsigned count) {
  ConfirmSender& sender = senders_[context];
  auto run = sender.find(count);
  if (run && sender.free() >= look_below_[context]) [[likely]]
    return run;
  if (!run && skip_looks_ != 0) {
    --skip_looks_;
    return std::nullopt;
  }
  look_at_given(context);
  if (!run) run = sender.find(count);
  if (peer() == nullptr && unechoed_ != 0) post_echoes();
  if (run) {
    looks_in_vain_ = 0;
  } else {
    if (peer() == nullptr && !reading_given_) ask_for_room();
    // The receiver's bitmap is a cache line that it writes: the more it is read the slower it gets.
    skip_looks_ = std::min(1U << std::min(looks_in_vain_++, 5U), kMostSkippedLooks);
  }
  return run;
}

// Takes in what an earlier read brought, and posts another.
void BatchedTransport::look_at_given(Context context) {
  Head& ours = head();
  if (peer() != nullptr) {
    given_reads_.add(1);
    take_given();
    return set_given_threshold(context);
  }
  if (!reading_given_) {
    SendRequest request;
    request.id = kGivenId;
    request.opcode = Opcode::kRead;
    request.local = &ours.peer_given_back;
    request.bytes = (1 + words_) * sizeof(std::uint64_t);
    request.local_key = local_key();
    request.remote_address = peer_head() + offsetof(Head, given_back);
    request.remote_key = peer_key();
    if (!post_rest() || post_sends({&request, 1}) == 0) return;
    reading_given_ = true;
    given_reads_.add(1);
  }
  if (!is_over(kGivenId)) return;
  reading_given_ = false;
  take_given();
  set_given_threshold(context);
}

// If little came back the next look waits until half of what is left was used.
void BatchedTransport::set_given_threshold(Context context) {
  const unsigned threshold = senders_[context].slots() * options().confirm_threshold / 100;
  const unsigned free = senders_[context].free();
  look_below_[context] = free >= threshold ? threshold : free / 2;
}

void BatchedTransport::take_given() {
  auto& theirs = peer() != nullptr ? peer()->given : head().peer_given;
  for (unsigned at = 0; at < words_; ++at) {
    // Acquire: we write into slots given back only after the receiver was done with them.
    const std::uint64_t given = std::atomic_ref(theirs[at]).load(std::memory_order_acquire);
    if (given == given_seen_[at]) continue;
    given_seen_[at] = given;
    const Context context = layout().context_of_word(at);
    unsigned freed = 0;
    if (!senders_[context].see(at - layout().first_word(context), given, freed))
      fail_sending("slots given back that it did not have");
    look_below_[context] = senders_[context].slots() * options().confirm_threshold / 100;
  }
}

SlotHeader BatchedTransport::next_header(Context context, SlotKind kind, std::size_t bytes) const {
  SlotHeader header;
  header.place = places_[context];
  header.size = sized(bytes, kind);
  header.sequence = sequence_ + 1;
  header.check = check_of(header, peer_header_key_);
  return header;
}

// A message was accepted, and the peer may sleep, or read in vain, until it is told of it; and we
// may not be called again for long.
void BatchedTransport::tell_at_once() {
  for (unsigned tries = 0; !(close_bundle() && post_rest()) && tries < kMostTriesAtOnce; ++tries)
    poll_send_errors();
}

// Into the open bundle, which is told of by its length alone.
bool BatchedTransport::append(std::span<const std::byte> message, Context context) {
  const std::size_t room = bundle_room_[context != 0];
  // A receiver copies so much of a short one.
  const std::size_t needed = Bundled::kHeadBytes + std::max(message.size(), Delivery::kSmallBytes);
  if (bundle_.run.count == 0 || bundle_.context != context || bundle_.bytes + needed > room)
      [[unlikely]] {
    if (!close_bundle()) {
      poll_send_errors();
      return false;
    }
    const auto run = find_free(context, 1);
    if (!run) return no_room();
    bundle_ = {context, *run, 0};
    if (peer() == nullptr) {
      const std::uint64_t place = sealed(places_[context]);
      std::memcpy(outgoing(context, *run) + offsetof(SlotFront, place), &place, sizeof place);
    }
  }
  std::byte* at = outgoing(context, bundle_.run) + layout().header_bytes() + bundle_.bytes;
  if (peer() != nullptr) prefetch_for_writing(at + kBundleAhead);
  const std::uint64_t size = sealed(static_cast<std::uint32_t>(message.size()));
  std::memcpy(at, &size, sizeof size);
  if (!message.empty()) std::memcpy(at + sizeof size, message.data(), message.size());
  bundle_.bytes += Bundled::taken(message.size());
  publish_posted();
  // As in post_unit(): the number, then a look whether somebody waits.
  if (peer() != nullptr) {
    light_barrier(asymmetric_barriers());
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  look_at_limit();
  if (bell_.may_ring()) [[unlikely]]
    tell_at_once();
  count_message();
  return true;
}

// True: none is open.
bool BatchedTransport::close_bundle() {
  if (bundle_.run.count == 0) return true;
  const OpenBundle bundle = std::exchange(bundle_, {});
  // A receiver that finds it open may read it: so this comes before its write.
  if (peer() == nullptr) publish_posted();
  if (post_unit(bundle.context, bundle.run, SlotKind::kBundle, bundle.bytes)) return true;
  bundle_ = bundle;
  publish_posted();
  return false;
}

void BatchedTransport::publish_posted() {
  const bool open = bundle_.run.count != 0;
  const Posted posted{sequence_,
                      open ? layout().first_slot(bundle_.context) + bundle_.run.first : 0,
                      bundle_.bytes};
  // Release: the bytes of the bundle, the bitmap.
  std::atomic_ref(head().posted).store(posted.word(), std::memory_order_release);
}

bool BatchedTransport::post(Context context, const SlotRun& run, SlotKind kind, std::size_t bytes) {
  return close_bundle() && post_unit(context, run, kind, bytes);
}

bool BatchedTransport::post_unit(Context context, const SlotRun& run, SlotKind kind,
                                 std::size_t bytes) {
  if (!rest_.empty() && !post_rest()) [[unlikely]]
    return false;
  if (peer() == nullptr) return post_by_requests(context, run, kind, bytes);
  const unsigned slot = layout().first_slot(context) + run.first;
  peer()->headers[slot] = next_header(context, kind, bytes);
  ConfirmSender& sender = senders_[context];
  sender.take(run);
  const std::uint32_t place = places_[context]++;
  ++sequence_;
  // Release: the slot and its header come before the flip, and that before the number, which is
  // what the receiver looks at.
  std::atomic_ref(head().filled[layout().first_word(context) + run.word()])
      .store(sender.published(run.word()), std::memory_order_release);
  publish_posted();
  // The receiver that allows rings has us all pass a full barrier before it believes that number.
  light_barrier(asymmetric_barriers());
  look_at_limit();
  if (bell_.may_ring()) [[unlikely]] {
    SendRequest request;
    // Only a plain message is told with its length: its receiver then does not look at the header.
    if (kind == SlotKind::kMessage) request = write_of(context, run, bytes);
    request.immediate = ring_of(slot, place);
    ring(request);
    tell_at_once();
  }
  fetch_ahead(context, run, bytes);
  return true;
}

// Takes the lines of a slot that comes soon from the receiver's cache, while others are filled.
void BatchedTransport::fetch_ahead(Context context, const SlotRun& run, std::size_t bytes) const {
  const FetchAhead ahead(bytes);
  unsigned soon = run.first + ahead.messages * run.count;
  if (soon >= layout().slots(context)) soon = 0;
  const std::byte* at = outgoing(context, {soon, 1});
  for (unsigned i = 0; i < ahead.lines; ++i) prefetch_for_writing(at + i * FetchAhead::kLineBytes);
  prefetch_for_writing(&peer()->headers[layout().first_slot(context) + soon]);
}

bool BatchedTransport::post_by_requests(Context context, const SlotRun& run, SlotKind kind,
                                        std::size_t bytes) {
  look_at_limit();
  const SlotFront front{senders_[context].flipped(run), next_header(context, kind, bytes)};
  // What follows may be read by the peer already.
  std::memcpy(outgoing(context, run), &front, offsetof(SlotFront, place));

  // As in post_unit().
  const bool rings = bell_.may_ring() && kind == SlotKind::kMessage;
  std::array<SendRequest, 2> requests;
  requests[0] = write_of(context, run, sizeof front + bytes);
  if (rings) {
    requests[0].opcode = Opcode::kWriteWithImmediate;
    requests[0].immediate = ring_of(layout().first_slot(context) + run.first, front.header.place);
  }
  const unsigned word = layout().first_word(context) + run.word();
  const unsigned before =
      std::exchange(last_in_word_[word], layout().first_slot(context) + run.first);
  requests[1] = echo_of(word);
  // A receiver that is rung for it knows of it; it will see the flip of a later one.
  const std::size_t wanted = rings ? 1 : 2;
  const std::size_t accepted = post_sends(std::span(requests).first(wanted));
  if (accepted == 0) {
    last_in_word_[word] = before;
    return false;
  }

  senders_[context].take(run);
  last_ring_ = ring_of(last_in_word_[word], front.header.place);
  ++places_[context];
  ++sequence_;
  if (accepted < wanted) rest_.push_back(requests[1]);
  if (rings) {
    unechoed_ |= 1ULL << word;
  } else {
    unechoed_ &= ~(1ULL << word);
  }
  // The number, then a look whether to ring; the receiver asks to be rung, then looks at the
  // number. With a full barrier in between on both sides one of us sees the other.
  publish_posted();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (rings) {
    bell_.ring();
    rings_.add(1);
  } else {
    look_at_limit();
    if (bell_.may_ring()) [[unlikely]] {
      SendRequest request;
      request.immediate = ring_of(layout().first_slot(context) + run.first, front.header.place);
      ring(request);
    }
  }
  // From here on it reads, and gives back what it was rung for.
  if (unechoed_ != 0 && !bell_.may_ring()) post_echoes();
  if (!rest_.empty()) [[unlikely]]
    tell_at_once();
  return true;
}

// Reads the latest value of one of our bitmap's words back from where its unit was written.
SendRequest BatchedTransport::echo_of(unsigned word) {
  const unsigned slot = last_in_word_[word];
  const Context context = layout().context_of(slot);
  SendRequest request;
  request.opcode = Opcode::kRead;
  request.signaled = false;
  request.local = &head().filled[word];
  request.bytes = sizeof(std::uint64_t);
  request.local_key = local_key();
  request.remote_address = peer_slots() +
                           layout().offset(context, slot - layout().first_slot(context)) +
                           offsetof(SlotFront, echo);
  request.remote_key = peer_key();
  return request;
}

void BatchedTransport::post_echoes() {
  for (; unechoed_ != 0; unechoed_ &= unechoed_ - 1)
    rest_.push_back(echo_of(static_cast<unsigned>(std::countr_zero(unechoed_))));
  post_rest();
}

// A receiver that sleeps may have slots which it gives back only after another read: it is rung for
// what it knows already.
void BatchedTransport::ask_for_room() {
  look_at_limit();
  if (!bell_.may_ring()) return;
  SendRequest request;
  request.immediate = last_ring_;
  ring(request);
}

std::size_t BatchedTransport::post_sends(std::span<const SendRequest> requests) {
  if (peer() != nullptr) return SlotTransport::post_sends(requests);
  const std::lock_guard lock(send_lock_);
  return SlotTransport::post_sends(requests);
}

std::size_t BatchedTransport::poll_sends(std::span<Completion> completions) {
  if (peer() == nullptr) {
    const std::lock_guard lock(send_lock_);
    collect_completions();
    const std::size_t count = std::min(completions.size(), sender_completions_.size());
    std::copy_n(sender_completions_.begin(), count, completions.begin());
    sender_completions_.erase(sender_completions_.begin(),
                              sender_completions_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  // Stores into memory of a peer that is gone say nothing: so ask by a request that moves nothing.
  if (probes_++ % kPollsPerProbe != 0) return SlotTransport::poll_sends(completions);
  SendRequest request;
  request.signaled = false;
  request.inlined = true;
  request.remote_address = peer_head();
  request.remote_key = peer_key();
  post_sends({&request, 1});
  return SlotTransport::poll_sends(completions);
}

// Rings for a message that went without, with its place as immediate data.
void BatchedTransport::ring(SendRequest& request) {
  request.opcode = Opcode::kWriteWithImmediate;
  request.signaled = false;
  request.inlined = true;
  request.remote_key = peer_key();
  if (request.bytes == 0) request.remote_address = peer_head();
  bell_.ring();
  rings_.add(1);
  if (!rest_.empty() || post_sends({&request, 1}) == 0) rest_.push_back(request);
}

// What must go before anything else, as the send queue took only part of it.
bool BatchedTransport::post_rest() {
  while (!rest_.empty()) {
    const std::size_t accepted = post_sends(rest_);
    if (accepted == 0) return false;
    rest_.erase(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(accepted));
  }
  return true;
}

void BatchedTransport::arm(Side side) {
  if (side == Side::kSend && peer() == nullptr) {
    const std::lock_guard lock(send_lock_);
    SlotTransport::arm(side);
  } else {
    SlotTransport::arm(side);
  }
  if (side == Side::kSend) {
    skip_looks_ = 0;  // a sender that sleeps between looks needs no other pause
  } else {
    if (!doorbell_.allowed() && !doorbell_.reading()) allow();
    if (peer() != nullptr && !doorbell_.checked()) {
      heavy_barrier(asymmetric_barriers());  // pairs with light_barrier in the peer's post()
      doorbell_.fenced();
    }
    if (owes()) doorbell_.hurry();
  }
}

void BatchedTransport::look_at_limit() {
  // Relaxed: a number that orders nothing; the fence in post() does.
  const std::uint64_t word = std::atomic_ref(head().ring_limit).load(std::memory_order_relaxed);
  if (word == limit_word_) [[likely]]
    return;
  if (!is_sealed(word) || !bell_.see(static_cast<std::uint32_t>(word >> 32)))
    fail_sending("an impossible number of rings");
  limit_word_ = word;
}

// The end is a message like others, of context 0; it tells for each context how many there were.
bool BatchedTransport::post_end() {
  const auto run = find_run(0, 1);
  if (!run) return false;
  std::array<std::uint32_t, kContextCount> places = places_;
  ++places[0];  // itself
  std::memcpy(outgoing(0, *run) + layout().header_bytes(), places.data(), sizeof places);
  if (!post(0, *run, SlotKind::kEnd, sizeof places)) return false;
  prepare_flush();
  return true;
}

// A receiver that comes to look only after we are gone cannot read our bitmap any more. So it gets
// one number: up to that one all are in its memory. By requests it may be seen before messages that
// were written earlier, but not before what a read that is over came behind; and behind each of
// them comes one.
bool BatchedTransport::prepare_flush() {
  if (!close_bundle()) return false;
  std::uint64_t word = sealed(sequence_);
  if (peer() != nullptr) {
    // Release: the messages.
    std::atomic_ref(peer()->landed).store(word, std::memory_order_release);
    return true;
  }
  post_echoes();
  if (!post_rest()) return false;
  SendRequest request = write_of_word(word, peer_head() + offsetof(Head, landed), peer_key());
  request.fenced = true;
  return post_sends({&request, 1}) != 0;
}

// --- both

void BatchedTransport::add_stats(Stats& stats) const {
  SlotTransport::add_stats(stats);
  stats.confirm_reads += filled_reads_.get() + given_reads_.get();
  stats.slots_confirmed += confirmed_.get();
  stats.doorbells += rings_.get();
}

}  // namespace leat::detail
