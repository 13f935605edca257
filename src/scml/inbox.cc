#include "scml/inbox.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "leat/error.h"

namespace leat::scml::detail {
namespace {

constexpr std::uint64_t kBitsPerWord = 64;
// What a message takes of a ring beside its own bytes, at most: a header's place, and rounding.
constexpr std::uint64_t kRingCost = 128;

[[noreturn]] void not_due(std::uint64_t index, std::uint64_t count, const char* why) {
  throw Error(ErrorCode::kProtocol,
              "messages " + std::to_string(index) + " to " + std::to_string(index + count - 1) +
                  " arrived, " + why,
              "All parties must open the same arrays and send each message once.");
}

}  // namespace

LandingMemory::LandingMemory(std::uint64_t bytes) : bytes_(bytes) {
  void* memory = mmap(nullptr, std::max<std::uint64_t>(bytes, 1), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    const int why = errno;
    throw Error(ErrorCode::kResource,
                "no memory for messages: mmap of " + std::to_string(bytes) +
                    " bytes failed: " + std::generic_category().message(why),
                "Lower planned_bytes, or plan for a smaller batch.", why);
  }
  data_ = static_cast<std::byte*>(memory);
  (void)madvise(memory, bytes, MADV_HUGEPAGE);  // a wish
}

LandingMemory::~LandingMemory() { munmap(data_, std::max<std::uint64_t>(bytes_, 1)); }

void Inbox::open(const leat::MessageArray& array) {
  array_ = array;
  open_ = true;
  ++epoch_;
  arrived_count_ = 0;
  kept_bytes_ = 0;
  bits_.assign((array.count + kBitsPerWord - 1) / kBitsPerWord, 0);
}

void Inbox::close() {
  open_ = false;
  kept_.clear();
}

void Inbox::check(unsigned context, std::uint64_t index, std::uint64_t count) const {
  if (!open_)
    throw Error(ErrorCode::kInvalidArgument,
                "no array is open in context " + std::to_string(context), "Open it first.");
  if (count == 0 || index >= array_.count || count > array_.count - index)
    throw Error(ErrorCode::kInvalidArgument,
                std::to_string(count) + " messages from index " + std::to_string(index) +
                    " on: the array of context " + std::to_string(context) + " has " +
                    std::to_string(array_.count));
}

std::uint64_t Inbox::count_of(unsigned context, std::uint64_t bytes) const {
  if (open_ && (bytes == 0 || bytes % array_.message_bytes != 0))
    throw Error(ErrorCode::kInvalidArgument,
                std::to_string(bytes) +
                    " bytes are not a whole number of messages: those of context " +
                    std::to_string(context) + " have " + std::to_string(array_.message_bytes));
  return open_ ? bytes / array_.message_bytes : 1;  // a closed one is check()'s matter
}

bool Inbox::arrived(std::uint64_t index, std::uint64_t count) const {
  const std::uint64_t end = index + count;
  while (index < end) {
    const std::uint64_t rest = kBitsPerWord - index % kBitsPerWord;
    const auto here = static_cast<std::uint64_t>(
        std::countr_one(bits_[index / kBitsPerWord] >> index % kBitsPerWord));
    index += here;
    if (here < rest) break;
  }
  return index >= end;
}

void Inbox::arrive(std::uint64_t index, std::span<const std::byte> bytes, Message* message,
                   std::uint64_t ring_bytes, std::byte* memory) {
  const std::uint64_t count = bytes.size() / array_.message_bytes;
  if (bytes.size() % array_.message_bytes != 0 || index >= array_.count || count == 0 ||
      count > array_.count - index)
    not_due(index, std::max<std::uint64_t>(count, 1), "which are not in the array");
  if (count > missing()) not_due(index, count, "although fewer are to come");
  for (std::uint64_t i = index; i < index + count;) {
    const std::uint64_t bit = i % kBitsPerWord;
    const std::uint64_t n = std::min(kBitsPerWord - bit, index + count - i);
    const std::uint64_t mask = (n == kBitsPerWord ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1)
                               << bit;
    if ((bits_[i / kBitsPerWord] & mask) != 0)
      not_due(index, count, "of which some had come before");
    bits_[i / kBitsPerWord] |= mask;
    i += n;
  }
  arrived_count_ += count;

  // A kept message holds up its ring once that has gone round. So nothing is kept unless the ring
  // takes all that may come after it, one by one at worst.
  const std::uint64_t cost = bytes.size() + kRingCost;
  const std::uint64_t rest = missing() * (array_.message_bytes + kRingCost);
  if (message != nullptr && kept_bytes_ + cost + rest <= ring_bytes) {
    kept_bytes_ += cost;
    kept_[index] = {std::move(*message), count, false};
    return;
  }
  if (!kept_.empty()) kept_bytes_ += cost;
  std::memcpy(memory + array_.base_bytes + array_.message_bytes * index, bytes.data(),
              bytes.size());
}

std::span<const std::byte> Inbox::view(std::uint64_t index, std::uint64_t count,
                                       std::byte* memory) {
  const std::uint64_t each = array_.message_bytes;
  auto first = kept_.upper_bound(index);
  if (first != kept_.begin() && std::prev(first)->first + std::prev(first)->second.count > index)
    --first;
  if (first != kept_.end() && first->first == index && first->second.count == count)
    return first->second.message.bytes();
  // Somebody may have a view of what is kept, so that it stays beside the copy.
  for (auto it = first; it != kept_.end() && it->first < index + count; ++it) {
    if (it->second.copied) continue;
    const auto bytes = it->second.message.bytes();
    std::memcpy(memory + array_.base_bytes + each * it->first, bytes.data(), bytes.size());
    it->second.copied = true;
  }
  return {memory + array_.base_bytes + each * index, each * count};
}

}  // namespace leat::scml::detail
