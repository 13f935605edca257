// Arrivals where both processes share memory: what stands in place of a network and of completion
// queues, and the two ends of it. The queue pair posts and polls through them; a transport may do
// so too, for messages that need no more than that (QueuePair::arrivals).
//
// Both sides map the memory. Every word is written by one side only, except the two flags that a
// sleeper sets and its waker clears. A peer may write anything at any time, so a reader copies each
// word once and checks the copy.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/asymmetric_barrier.h"
#include "verbs/request.h"
#include "verbs/shared_copy.h"

namespace leat::detail {

inline constexpr std::size_t kCacheLine = 64;

// One arrival. `sequence` is written last, with release order; the receiver waits for the value
// that is due at this place, so head and tail need not be shared. A message of up to kPayloadBytes
// travels in the entry, so that it occupies one cache line.
struct alignas(kCacheLine) CompletionEntry {
  static constexpr std::size_t kPayloadBytes = 48;

  std::atomic<std::uint32_t> sequence;
  std::atomic<std::uint32_t> immediate;
  std::atomic<std::uint32_t> bytes;
  std::uint32_t unused;
  std::byte payload[kPayloadBytes];
};
static_assert(sizeof(CompletionEntry) == kCacheLine);

// What one direction shares beside its ring. Each cache line has one writer.
struct Flow {
  alignas(kCacheLine) std::atomic<std::uint64_t> posted;  // receives posted so far; by the receiver
  alignas(kCacheLine) std::atomic<std::uint32_t> receiver_armed;  // notify at an arrival
  alignas(kCacheLine) std::atomic<std::uint32_t> sender_armed;    // notify when there is room
  alignas(kCacheLine) std::atomic<std::uint32_t> closed;  // by the sender: it is gone or in error
};

// A direction: Flow, then `depth` CompletionEntry. Depth is a power of two.
struct Direction {
  Flow* flow = nullptr;
  CompletionEntry* completions = nullptr;
  std::uint32_t mask = 0;

  static constexpr std::size_t bytes(std::size_t depth) {
    return sizeof(Flow) + depth * sizeof(CompletionEntry);
  }
  // `memory` is zeroed when new, aligned to a cache line and holds bytes(depth).
  static Direction at(std::byte* memory, std::uint32_t depth) {
    Direction direction;
    direction.flow = reinterpret_cast<Flow*>(memory);
    direction.completions = reinterpret_cast<CompletionEntry*>(memory + sizeof(Flow));
    direction.mask = depth - 1;
    return direction;
  }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// Notifies a side of the peer that has armed itself.
void wake(std::atomic<std::uint32_t>& armed, int peer_event) noexcept;
// Does so if it has. The caller's stores came before light_barrier().
inline void wake_if_armed(std::atomic<std::uint32_t>& armed, int peer_event) noexcept {
  if (armed.load(std::memory_order_relaxed) != 0) [[unlikely]]
    wake(armed, peer_event);
}

// Threads: the send side's.
class ArrivalSender {
 public:
  // `peer_event`: wakes the peer's receive side. `asymmetric`: as of light_barrier().
  ArrivalSender(const Direction& to, int peer_event, bool asymmetric)
      : to_(to), peer_event_(peer_event), asymmetric_(asymmetric) {}

  // Whether the peer has posted a receive for one more.
  bool has_receive() {
    if (sent_ < receives_seen_) [[likely]]
      return true;
    // Acquire: the receiver is done with the entries that it gives back.
    receives_seen_ = to_.flow->posted.load(std::memory_order_acquire);
    // A count beyond the ring is invalid, but harms only the peer that wrote it.
    return sent_ < receives_seen_;
  }
  // For how many more it has, as far as we have looked.
  std::uint64_t receives() const { return receives_seen_ > sent_ ? receives_seen_ - sent_ : 0; }
  // Fills the next entry and makes it visible; requires has_receive(). The bytes of a message above
  // kPayloadBytes are in their target already; a small one is copied into the entry, so that the
  // receiver finds it in the line that it waits on.
  void publish(const std::byte* message, std::size_t bytes, std::uint32_t immediate) {
    CompletionEntry& entry = to_.completions[sent_ & to_.mask];
    if (bytes <= CompletionEntry::kPayloadBytes) copy_small(entry.payload, message, bytes);
    entry.immediate.store(immediate, std::memory_order_relaxed);
    entry.bytes.store(static_cast<std::uint32_t>(bytes), std::memory_order_relaxed);
    ++sent_;
    // Release: a receiver that sees the sequence number sees the entry and all earlier bytes.
    entry.sequence.store(static_cast<std::uint32_t>(sent_), std::memory_order_release);
  }
  // Once for any number of publish(): a receiver that armed itself either sees our entries or is
  // seen here.
  void announce() const {
    light_barrier(asymmetric_);
    if (to_.flow->receiver_armed.load(std::memory_order_relaxed) != 0) [[unlikely]]
      wake_receiver();
  }

 private:
  [[gnu::noinline]] void wake_receiver() const noexcept {
    wake(to_.flow->receiver_armed, peer_event_);
  }

  const Direction to_;
  const int peer_event_;
  const bool asymmetric_;
  std::uint64_t sent_ = 0;           // entries published
  std::uint64_t receives_seen_ = 0;  // the peer's count, as last read
};

// Threads: the receive side's.
class ArrivalReceiver {
 public:
  explicit ArrivalReceiver(const Direction& from) : from_(from) {}

  // The next arrival, if there is one; take() takes it. Its payload is in the entry, which the peer
  // gets back with the receives posted next.
  bool peek(Completion& completion) const {
    const CompletionEntry& entry = next();
    if (!is_due(entry)) return false;
    if (taken_ == posted_) [[unlikely]]
      return false;  // invalid: no receive is posted
    completion.id = 0;
    completion.status = CompletionStatus::kSuccess;
    completion.kind = CompletionKind::kImmediate;
    completion.immediate = entry.immediate.load(std::memory_order_relaxed);
    completion.bytes = entry.bytes.load(std::memory_order_relaxed);
    completion.payload =
        completion.bytes <= CompletionEntry::kPayloadBytes ? entry.payload : nullptr;
    return true;
  }
  void take() {
    ++taken_;
    vain_looks_ = 0;
  }
  // Counts a look in vain. True once in `period` of them without an arrival between.
  bool in_vain(std::uint32_t period) {
    if (++vain_looks_ < period) return false;
    vain_looks_ = 0;
    return true;
  }
  // Whether something waits, also something invalid.
  bool waits() const { return is_due(next()); }

  // Receives that are posted and not used.
  std::uint64_t receives() const { return posted_ - taken_; }
  std::size_t room() const { return from_.mask + 1 - static_cast<std::size_t>(receives()); }
  void post(std::size_t count) {
    posted_ += count;
    // Release: this side is done with the entries that it gives back.
    from_.flow->posted.store(posted_, std::memory_order_release);
  }

 private:
  const CompletionEntry& next() const { return from_.completions[taken_ & from_.mask]; }
  bool is_due(const CompletionEntry& entry) const {
    // Acquire pairs with publish: the entry and the bytes of the message.
    return entry.sequence.load(std::memory_order_acquire) == static_cast<std::uint32_t>(taken_ + 1);
  }

  const Direction from_;
  std::uint64_t taken_ = 0;
  std::uint64_t posted_ = 0;
  std::uint32_t vain_looks_ = 0;
};

// Both ends of one side.
class Arrivals {
 public:
  Arrivals(const Direction& outgoing, const Direction& incoming, int peer_event, bool asymmetric)
      : sender(outgoing, peer_event, asymmetric), receiver(incoming), incoming_(incoming) {}

  // Whether this side's queue pair is in error, or the peer is gone: then everything goes by the
  // queue pair, which says so.
  bool ended() const {
    // Relaxed: it only says that requests fail from now on.
    return failed.load(std::memory_order_relaxed) || peer_closed();
  }
  bool peer_closed() const {
    // Acquire: what the peer published before its end is visible after this.
    return incoming_.flow->closed.load(std::memory_order_acquire) != 0;
  }

  alignas(kCacheLine) ArrivalSender sender;
  alignas(kCacheLine) ArrivalReceiver receiver;
  // Set by either thread.
  alignas(kCacheLine) std::atomic<bool> failed{false};

 private:
  const Direction incoming_;
};

}  // namespace leat::detail
