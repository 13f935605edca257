#include "trusted/parts/orderer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "leat/error.h"

namespace leat::trusted::detail {
namespace {

// Requests that no step has yet: beyond that clients must try again.
constexpr std::size_t kMaxFreshBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxFresh = 4096;
// Of any one command.
constexpr std::size_t kOutputRoom = kItemBytes + kMaxItemBytes;
// So that requests of a few commands have room.
constexpr std::size_t kLeastRequestBytes = 1024;

}  // namespace

Orderer::Orderer(Ledger& ledger, unsigned batch, std::size_t room)
    : ledger_(ledger), batch_(batch), room_(room) {
  constexpr std::size_t kLeast = kStepBytes + kBlobBytes + kLeastRequestBytes + kOutputRoom;
  if (room < kLeast)
    throw Error(ErrorCode::kInvalidArgument,
                "steps of " + std::to_string(kLeast) + " bytes must be attested, and there is " +
                    "room for " + std::to_string(room),
                "See --max-payload of leat-attestd.");
}

std::size_t Orderer::max_request_bytes() const {
  return std::min(room_ - kStepBytes - kBlobBytes - kOutputRoom, kMaxRequestBytes);
}

void Orderer::take(View request, const Signed& content) {
  if (ledger_.has_taken(content.sender, content.first) || fresh_.size() == kMaxFresh ||
      fresh_bytes_ + request.size() > kMaxFreshBytes || request.size() > max_request_bytes())
    return;
  fresh_.push_back({Bytes(request.begin(), request.end()), content.items.count()});
  fresh_bytes_ += request.size();
  fresh_commands_ += content.items.count();
}

std::optional<Bytes> Orderer::next(bool is_checkpoint, Result& result, Bytes& snapshot) {
  Step step;
  std::deque<Fresh> taken;
  std::size_t room = room_ - kStepBytes;
  while (!fresh_.empty() && kBlobBytes + fresh_.front().request.size() + kOutputRoom <= room) {
    Fresh fresh = std::move(fresh_.front());
    fresh_.pop_front();
    fresh_bytes_ -= fresh.request.size();
    fresh_commands_ -= fresh.commands;
    if (ledger_.take(fresh.request)) continue;  // signed by no client, or there already
    room -= kBlobBytes + fresh.request.size();
    step.requests.emplace_back(taken.emplace_back(std::move(fresh)).request);
  }
  result.count = ledger_.execute(batch_, room, result.outputs);
  ledger_.keep();
  if (step.requests.empty() && result.count == 0) return std::nullopt;
  step.outputs = *Items::read(result.outputs, result.count);
  if (is_checkpoint) {
    snapshot = ledger_.save();
    result.digest = step.digest = digest_of(snapshot);
  }
  return write_step(step);
}

bool Complaints::overdue(const Ledger& ledger, Time now) {
  std::erase_if(complaints_, [&](const auto& complaint) {
    return ledger.has_executed(complaint.first, complaint.second.first);
  });
  bool any = false;
  for (auto& [client, complaint] : complaints_)
    if (now >= complaint.until && !std::exchange(complaint.was_overdue, true)) any = true;
  return any;
}

}  // namespace leat::trusted::detail
