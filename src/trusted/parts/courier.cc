#include "trusted/parts/courier.h"

#include <algorithm>

#include "base/wire.h"

namespace leat::trusted::detail {
namespace {

using leat::detail::WireReader;
using leat::detail::WireWriter;

constexpr std::size_t kResumptionBytes = 33, kReceivedBytes = 9;
// What a node may have received and not said so: it says so seldom, because it costs a message.
constexpr std::uint64_t kMostUnacknowledged = 64;
constexpr std::size_t kMostUnacknowledgedBytes = std::size_t{1} << 20;

}  // namespace

std::optional<Resumption> read_resumption(View message) {
  if (type_of(message) != MessageType::kResume || message.size() != kResumptionBytes)
    return std::nullopt;
  WireReader reader(message.subspan(1));
  Resumption resumption;
  for (std::uint64_t* number :
       {&resumption.life, &resumption.peers_life, &resumption.received, &resumption.first})
    *number = reader.number<std::uint64_t>();
  return resumption;
}

Bytes write_resumption(const Resumption& resumption) {
  Bytes message(kResumptionBytes);
  WireWriter writer(message);
  writer.number(static_cast<std::uint8_t>(MessageType::kResume));
  for (const std::uint64_t number :
       {resumption.life, resumption.peers_life, resumption.received, resumption.first})
    writer.number(number);
  return message;
}

std::optional<std::uint64_t> read_received(View message) {
  if (type_of(message) != MessageType::kReceived || message.size() != kReceivedBytes)
    return std::nullopt;
  return WireReader(message.subspan(1)).number<std::uint64_t>();
}

Bytes write_received(std::uint64_t count) {
  Bytes message(kReceivedBytes);
  WireWriter writer(message);
  writer.number(static_cast<std::uint8_t>(MessageType::kReceived));
  writer.number(count);
  return message;
}

bool Courier::keep(View message) {
  bytes_ += message.size();
  kept_.emplace_back(message.begin(), message.end());
  if (bytes_ <= max_bytes_) return true;
  first_ += kept_.size();
  next_ = first_;
  kept_.clear();
  bytes_ = 0;
  return false;
}

Resumption Courier::resumption() const { return {life_, peers_life_, received_, first_}; }

bool Courier::resume(const Resumption& theirs) {
  const std::uint64_t end = first_ + kept_.size();
  const bool knows = theirs.peers_life == life_;
  if (theirs.life == 0 || (knows && theirs.received > end)) return false;
  // One that was started again begins where this node's messages begin, and says so as well.
  if (theirs.life != peers_life_) received_ = theirs.first;
  received_ = std::max(received_, theirs.first);
  peers_life_ = theirs.life;
  acknowledged_ = received_;
  unacknowledged_bytes_ = 0;
  if (knows) on_received(theirs.received);
  next_ = first_;
  return true;
}

std::optional<View> Courier::next() {
  if (next_ - first_ >= kept_.size()) return std::nullopt;
  return View(kept_[next_++ - first_]);
}

std::optional<std::uint64_t> Courier::count_received(std::size_t bytes) {
  ++received_;
  unacknowledged_bytes_ += bytes;
  if (received_ - acknowledged_ < kMostUnacknowledged &&
      unacknowledged_bytes_ < kMostUnacknowledgedBytes)
    return std::nullopt;
  acknowledged_ = received_;
  unacknowledged_bytes_ = 0;
  return received_;
}

void Courier::on_received(std::uint64_t count) {
  // Only what was sent; a peer that lies about it loses its own messages.
  for (count = std::min(count, first_ + kept_.size()); first_ < count; ++first_) {
    bytes_ -= kept_.front().size();
    kept_.pop_front();
  }
  next_ = std::max(next_, first_);
}

}  // namespace leat::trusted::detail
