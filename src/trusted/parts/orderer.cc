#include "trusted/parts/orderer.h"

#include <algorithm>
#include <iterator>
#include <list>
#include <string>
#include <utility>

#include "leat/error.h"

namespace leat::trusted::detail {
namespace {

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
  if (ledger_.has_taken(content.sender, content.first) || request.size() > max_request_bytes())
    return;
  const auto client = fresh_.find(content.sender);
  const bool full = client != fresh_.end() && client->second.size() == kMaxUnderWay;
  if (client != fresh_.end() && client->second.contains(content.first)) return;
  if (full && content.first > client->second.rbegin()->first) return;
  // Only now, because it costs most: what is sent again is not verified again.
  if (!ledger_.is_right(request, content)) return;
  if (full) remove(client, std::prev(client->second.end()));
  fresh_[content.sender].try_emplace(
      content.first, Fresh{Bytes(request.begin(), request.end()), content.items.count()});
  fresh_commands_ += content.items.count();
}

std::map<PartyId, Orderer::Requests>::iterator Orderer::next_client() {
  const auto next = fresh_.upper_bound(last_);
  return next == fresh_.end() ? fresh_.begin() : next;
}

void Orderer::remove(std::map<PartyId, Requests>::iterator client, Requests::iterator request) {
  fresh_commands_ -= request->second.commands;
  client->second.erase(request);
  if (client->second.empty()) fresh_.erase(client);
}

std::optional<Bytes> Orderer::next(bool is_checkpoint, Result& result, Bytes& snapshot) {
  Step step;
  std::list<Bytes> taken;
  std::size_t room = room_ - kStepBytes;
  while (!fresh_.empty() && ledger_.waiting() < batch_) {
    const auto client = next_client();
    const auto first = client->second.begin();
    if (kBlobBytes + first->second.request.size() + kOutputRoom > room) break;
    last_ = client->first;
    Bytes request = std::move(first->second.request);
    remove(client, first);
    if (!ledger_.take_right(request)) continue;  // its numbers are those of an earlier one
    room -= kBlobBytes + request.size();
    step.requests.emplace_back(taken.emplace_back(std::move(request)));
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
