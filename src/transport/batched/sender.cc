#include "transport/batched/sender.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace leat::detail {

void BatchedSender::start(std::size_t share) {
  const SlotLayout& layout = end_.layout();
  for (Context context = 0; context < kContextCount; ++context) {
    slots_[context] = ConfirmSender(layout.slots(context));
    look_below_[context] = threshold(context);
  }
  for (const Context context : {0U, 1U}) {
    bundle_room_[context] = Bundled::room(layout.run_bytes(context, 1));
    if (end_.options().bundles && bundle_room_[context] >= kLeastBundleBytes)
      too_long_to_bundle_[context] =
          std::min(bundle_room_[context] / share - Bundled::kHeadBytes, end_.max_message_bytes()) +
          1;
  }
}

void BatchedSender::take_given(BitmapWords& theirs, Context context, const BitmapWords* among) {
  const SlotLayout& layout = end_.layout();
  for (unsigned at = 0; at < layout.all_words(); ++at) {
    // Acquire: we write into slots given back only after the receiver was done with them.
    std::uint64_t given = std::atomic_ref(theirs[at]).load(std::memory_order_acquire);
    if (given == given_seen_[at]) continue;
    const Context owner = layout.context_of_word(at);
    const unsigned word = at - layout.first_word(owner);
    unsigned freed = 0;
    const std::uint64_t changed = given ^ given_seen_[at];
    bool possible = (changed & ~slots_[owner].busy(word)) == 0;
    if (among != nullptr) given = given_seen_[at] ^ (changed & (*among)[at]);
    possible = possible && slots_[owner].see(word, given, freed);
    if (!possible) end_.fail_sending("slots given back that it did not have");
    given_seen_[at] = given;
    look_below_[owner] = threshold(owner);
  }
  // If little came back, the next look waits until half of what is left was used.
  const unsigned free = slots_[context].free();
  const unsigned enough = threshold(context);
  look_below_[context] = free >= enough ? enough : free / 2;
}

// The end is a message of context 0 that says how many units each context had.
std::size_t BatchedSender::write_end(const SlotRun& run) {
  std::array<std::uint32_t, kContextCount> places = places_;
  ++places[0];  // itself
  std::memcpy(end_.outgoing_message(0, run), places.data(), sizeof places);
  return sizeof places;
}

void BatchedSender::take_limit(std::uint64_t word) {
  if (!is_sealed(word) || !doorbell_.see(number_in(word)))
    end_.fail_sending("an impossible number of doorbells");
  limit_word_ = word;
}

}  // namespace leat::detail
