// How far a sender may go on: counters that its receiver writes, many messages at a time, into the
// sender's memory. Two kinds: for each context the room given back, and for the connection the
// receives replaced, so that "receiver not ready" never happens.
//
// Words that the peer writes are kept apart from ours: SendCredits reads one once, checks it
// against what was sent, and only then goes by it. Each is sealed, since one damaged into an older
// count would be taken for silence, and both sides would wait for ever.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/counter.h"
#include "transport/context.h"
#include "transport/parts/requests.h"
#include "transport/parts/sealed_word.h"
#include "verbs/device.h"

namespace leat::detail {

// Receives are replaced, and the sender told, after this share of them was used; so a side posts at
// least as many.
inline constexpr std::uint64_t kReplaceShare = 4;

// What the receiver writes into the sender's memory: counts modulo 2^32, sealed, or 0 where nothing
// was written yet; each by one plain write.
struct CreditWords {
  std::uint64_t receives = 0;  // immediates whose receives were replaced by new ones
  std::uint64_t padding[7] = {};
  std::array<std::uint64_t, kContextCount> free_before{};  // positions, as RingReceiver counts them
};

// What a peer's setup says of its region: places for our messages, and at an offset the words that
// we write.
struct CreditedRegion {
  RemoteRegion region;
  std::uint64_t credits_offset = 0;
  std::uint64_t receives = 0;  // that the peer has posted

  // False: the setup contradicts itself.
  bool sound(std::uint64_t places_bytes) const {
    return credits_offset >= places_bytes && credits_offset % alignof(CreditWords) == 0 &&
           region.bytes >= sizeof(CreditWords) &&
           credits_offset <= region.bytes - sizeof(CreditWords) &&
           region.address <= UINT64_MAX - region.bytes && receives >= kReplaceShare;
  }
};

// The sender's end. Threads: the send side's.
class SendCredits {
 public:
  // `words`: CreditWords in memory that the peer may write; they must outlive this.
  void start(std::byte* words, const CreditedRegion& peer) {
    words_ = reinterpret_cast<CreditWords*>(words);
    receives_ = peer.receives;
  }

  // Whether the peer has a receive for one more immediate, as far as we have looked.
  bool has_receive() const { return sent_ - taken_ < receives_; }
  std::uint64_t receives() const { return receives_ - (sent_ - taken_); }  // for how many more
  void add_sent() { ++sent_; }
  std::uint64_t sent() const { return sent_; }  // immediates ever
  std::uint64_t taken() const { return taken_; }

  // The peer's word on how many immediates it has taken; may be any number. Calls `fail`, which
  // must throw, with why the word cannot be believed.
  template <typename Fail>
  std::uint64_t receives_word(Fail&& fail) const {
    const auto count = load(words_->receives, taken_);
    if (!count) fail(kDamaged);
    return *count;
  }
  // Goes by such a word. False: the peer cannot have taken so many, and nothing has changed.
  [[nodiscard]] bool take(std::uint64_t count) {
    if (count - taken_ > sent_ - taken_) return false;
    taken_ = count;
    return true;
  }
  // A place for `amount` from that context's `sender`, a RingSender or PoolSender; reads the peer's
  // word only if `sender` has no room. Returns nothing if there is none then either. Calls `fail`,
  // which must throw, with why the word cannot be believed.
  template <typename Sender, typename Fail>
  auto find_place(Sender& sender, Context context, std::uint64_t amount, Fail&& fail) const {
    auto found = sender.place(amount);
    if (!found) [[unlikely]] {
      const auto position = load(words_->free_before[context], sender.returned());
      if (!position) fail(kDamaged);
      if (!sender.take_back(*position)) fail("gave back room that it never had");
      found = sender.place(amount);
    }
    return found;
  }

 private:
  static constexpr const char* kDamaged = "wrote a damaged credit";

  // The count of such a word, which is at most 2^31 away from the `known` one. Nothing: the word
  // is damaged.
  static std::optional<std::uint64_t> load(std::uint64_t& place, std::uint64_t known) {
    // Acquire: we write into the room given back only after the receiver was done with it.
    const std::uint64_t word = std::atomic_ref(place).load(std::memory_order_acquire);
    if (word == 0) return known;
    if (!is_sealed(word)) return std::nullopt;
    const auto ahead =
        static_cast<std::int32_t>(number_in(word) - static_cast<std::uint32_t>(known));
    return known + static_cast<std::uint64_t>(std::int64_t{ahead});
  }

  CreditWords* words_ = nullptr;  // not ours: the peer writes them whenever it likes
  std::uint64_t receives_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t taken_ = 0;
};

// The receiver's end: replaces receives that were used, and writes to the peer how many, and what
// room is free. What finds no room in the send queue is written later, by retry(). Calls take the
// queue pair to post to; null: the old one has failed, so all is refused. Threads: the receive
// side's.
class ReceiveCredits {
 public:
  // `receives`: that are posted at a time, by post_all_receives.
  explicit ReceiveCredits(std::uint64_t receives)
      : receives_(receives), replace_at_(receives / kReplaceShare) {}
  void start(const CreditedRegion& peer) {
    address_ = peer.region.address + peer.credits_offset;
    key_ = peer.region.key;
  }

  std::uint64_t receives() const { return receives_; }
  void add_used() { ++to_replace_; }
  std::uint64_t used() const { return replaced_ + to_replace_; }  // ever
  // Whether so many were used that it is time for replace().
  bool due() const { return to_replace_ >= replace_at_; }
  [[gnu::noinline]] void replace(QueuePair& queue_pair) {
    const std::size_t posted = queue_pair.post_receives(to_replace_);
    to_replace_ -= posted;
    replaced_ += posted;
    write(&queue_pair, offsetof(CreditWords, receives), replaced_);
  }
  // Everything of that context before a position is free; the peer is told once that is `least`
  // more than it knows.
  void give_back(QueuePair* queue_pair, Context context, std::uint64_t free_before,
                 std::uint64_t least) noexcept {
    if (owes(context, free_before, least)) [[unlikely]]
      tell_free(queue_pair, context, free_before);
  }
  // Whether give_back() would tell the peer.
  bool owes(Context context, std::uint64_t free_before, std::uint64_t least) const {
    return free_before - told_[context] >= least;
  }

  // Whether something was refused, so that the peer may wait for it without an event at this side.
  bool refused() const { return refused_; }
  // Writes all of it again; `give_back_one` gives back what is free of a context.
  template <typename GiveBackOne>
  void retry(QueuePair* queue_pair, GiveBackOne&& give_back_one) noexcept {
    refused_ = false;
    write(queue_pair, offsetof(CreditWords, receives), replaced_);
    for (Context context = 0; context < kContextCount; ++context) give_back_one(context);
  }
  // A new queue pair has all receives posted, and what was written by the old one may be lost:
  // retry() then says it again.
  void begin_again() {
    replaced_ = used();
    to_replace_ = 0;
    told_.fill(0);
  }

  std::uint64_t writes() const { return writes_.get(); }  // any thread

 private:
  [[gnu::noinline]] void tell_free(QueuePair* queue_pair, Context context,
                                   std::uint64_t free_before) noexcept {
    const std::size_t word = offsetof(CreditWords, free_before) + context * sizeof(std::uint64_t);
    if (write(queue_pair, word, free_before)) told_[context] = free_before;
  }
  bool write(QueuePair* queue_pair, std::size_t offset, std::uint64_t count) noexcept {
    const std::uint64_t word = sealed(static_cast<std::uint32_t>(count));
    if (queue_pair == nullptr || !post_word(*queue_pair, address_ + offset, key_, word)) {
      refused_ = true;
      return false;
    }
    writes_.add(1);
    return true;
  }

  const std::uint64_t receives_;
  const std::uint64_t replace_at_;
  std::uint64_t address_ = 0;  // of the peer's CreditWords
  std::uint32_t key_ = 0;
  bool refused_ = false;
  std::uint64_t to_replace_ = 0;
  std::uint64_t replaced_ = 0;                       // ever
  std::array<std::uint64_t, kContextCount> told_{};  // positions that the peer knows
  Counter writes_;
};

}  // namespace leat::detail
