#include "transport/planned/message_arrays.h"

#include <algorithm>
#include <string>

#include "leat/error.h"

namespace leat::detail {
namespace {

constexpr std::uint64_t kWordBits = 64;

std::string named(unsigned context, const MessageArray& array) {
  const std::uint64_t end = array.base_bytes + array.message_bytes * array.count;
  return "the array of context " + std::to_string(context) + " (" + std::to_string(array.count) +
         " messages of " + std::to_string(array.message_bytes) + " bytes, at bytes " +
         std::to_string(array.base_bytes) + " to " + std::to_string(end) + ")";
}

constexpr const char* kArrayContextsAre = "Contexts of arrays are 0 to 255.";

std::string no_array_context(unsigned context) {
  return "there is no context " + std::to_string(static_cast<int>(context)) + " for an array";
}

// Bits `from` to before `end` of one word.
std::uint64_t mask(std::uint64_t from, std::uint64_t end) {
  return ~std::uint64_t{0} << from & ~std::uint64_t{0} >> (kWordBits - end);
}

}  // namespace

void MessageArrays::open(unsigned context, const MessageArray& wanted) {
  const auto refuse = [](const std::string& why, const std::string& advice = {}) {
    throw Error(ErrorCode::kInvalidArgument, "open: " + why, advice);
  };
  if (context >= kArrayContexts) refuse(no_array_context(context), kArrayContextsAre);
  if (wanted.message_bytes == 0 || wanted.count == 0 || wanted.count > MessageArray::kMaxCount)
    refuse("an array of " + std::to_string(wanted.count) + " messages of " +
               std::to_string(wanted.message_bytes) + " bytes",
           "1 to " + std::to_string(MessageArray::kMaxCount) + " messages are allowed.");
  const std::uint64_t bytes = wanted.message_bytes * wanted.count;  // below 2^59
  if (wanted.base_bytes % kPlaceUnitBytes != 0)
    refuse("base_bytes " + std::to_string(wanted.base_bytes) + " is not a multiple of 64");
  if (bytes > region_bytes_ || wanted.base_bytes > region_bytes_ - bytes)
    refuse("the planned region of " + std::to_string(region_bytes_) + " bytes is too small for " +
               std::to_string(bytes) + " bytes from byte " + std::to_string(wanted.base_bytes) +
               " on",
           "Raise planned_bytes on both sides.");
  MessageArray array = wanted;
  if (array.incoming == MessageArray::kAll) array.incoming = array.count;
  if (array.incoming > array.count)
    refuse(std::to_string(array.incoming) + " incoming messages in " + named(context, array));
  Slot& slot = slots_[context];
  if (slot.open) refuse(named(context, slot.array) + " is still open", "Close it first.");
  for (const unsigned other : open_) {
    const MessageArray& live = slots_[other].array;
    const std::uint64_t live_bytes = live.message_bytes * live.count;
    if (array.base_bytes < live.base_bytes + live_bytes &&
        live.base_bytes < array.base_bytes + bytes)
      refuse(named(context, array) + " overlaps " + named(other, live), "Close that one first.");
  }
  slot.bits.assign((array.count + kWordBits - 1) / kWordBits, 0);
  const std::uint32_t first_chunk = numbers_.take(context, array.count);
  if (first_chunk == MessageNumbers::kChunks)
    refuse("there are no numbers left for the messages of " + named(context, array),
           "There are 2^31; an array takes a range of them, in chunks of 2^19. Close some arrays.");
  slot.first_number = static_cast<std::uint32_t>(first_chunk * MessageNumbers::kChunk);
  slot.array = array;
  slot.open = true;
  open_.push_back(context);
  slot.peer_open = false;
  slot.arrived = 0;
  ++slot.epoch;
}

MessageArrays::Heard MessageArrays::hear_peer(unsigned context, std::uint64_t word,
                                              bool reachable) {
  Slot& slot = slots_[context];
  slot.peer_open = false;
  if (word == 0) return Heard::kNothing;
  if (!is_sealed_long(word)) return Heard::kDamaged;
  const std::uint64_t number = word >> kLongCheckBits;
  const std::uint64_t ahead = ((number >> kChunkBits) - slot.epoch) & kEpochs;
  if (ahead != 0) return ahead > kEpochs / 2 ? Heard::kNothing : Heard::kTooFar;
  const std::uint64_t first_chunk = number & ((std::uint64_t{1} << kChunkBits) - 1);
  if (first_chunk + MessageNumbers::chunks_of(slot.array.count) > MessageNumbers::kChunks)
    return Heard::kBadNumbers;
  if (!reachable) return Heard::kNoRegion;
  slot.peer_first_number = static_cast<std::uint32_t>(first_chunk * MessageNumbers::kChunk);
  slot.peer_open = true;
  return Heard::kOpen;
}

const char* MessageArrays::arrive_many(Slot& slot, std::uint32_t index, std::size_t bytes,
                                       std::uint64_t& messages) {
  if (!slot.open) return "no array is open there";
  const MessageArray& array = slot.array;
  std::uint64_t count = 1;
  if (bytes != array.message_bytes) {
    if (bytes == 0 || bytes % array.message_bytes != 0) return "its bytes are not whole messages";
    count = bytes / array.message_bytes;
  }
  if (index >= array.count || count > array.count - index) return "it is outside the array";
  const std::uint64_t end = index + count;
  for (std::uint64_t at = index; at < end;) {
    const std::uint64_t word = at / kWordBits;
    const std::uint64_t word_end = std::min(end, (word + 1) * kWordBits);
    const std::uint64_t bits = mask(at % kWordBits, word_end - word * kWordBits);
    if ((slot.bits[word] & bits) != 0) return kTwice;
    slot.bits[word] |= bits;
    at = word_end;
  }
  if (count > array.incoming - slot.arrived) return "all that were to come are here already";
  slot.arrived += count;
  messages += count;
  return nullptr;
}

std::string MessageArrays::message_of(std::uint32_t number) const {
  const unsigned context = numbers_.owner(number);
  if (context == MessageNumbers::kNobody) return "the number " + std::to_string(number);
  return "message " + std::to_string(number - slots_[context].first_number) + " of context " +
         std::to_string(context);
}

std::uint64_t MessageArrays::first_missing_of_many(unsigned context, std::uint64_t index,
                                                   std::uint64_t end) const {
  const std::vector<std::uint64_t>& bits = slots_[context].bits;
  while (index < end) {
    // Of the word from `index` on; what is shifted in counts as missing but is not looked at.
    const std::uint64_t rest = kWordBits - index % kWordBits;
    const auto here =
        static_cast<std::uint64_t>(std::countr_one(bits[index / kWordBits] >> index % kWordBits));
    index += here;
    if (here < rest) break;
  }
  return std::min(index, end);
}

void MessageArrays::throw_not_open(unsigned context) const {
  if (context >= kArrayContexts)
    throw Error(ErrorCode::kInvalidArgument, no_array_context(context), kArrayContextsAre);
  throw Error(ErrorCode::kInvalidArgument, "no array is open in context " + std::to_string(context),
              "Open it first.");
}

void MessageArrays::throw_outside(unsigned context, std::uint64_t index,
                                  std::uint64_t count) const {
  throw Error(ErrorCode::kInvalidArgument, std::to_string(count) + " messages from index " +
                                               std::to_string(index) + " on are outside " +
                                               named(context, slots_[context].array));
}

void MessageArrays::throw_odd_size(unsigned context, std::uint64_t bytes) const {
  throw Error(ErrorCode::kInvalidArgument, std::to_string(bytes) +
                                               " bytes are not whole messages of " +
                                               named(context, slots_[context].array));
}

}  // namespace leat::detail
