#include "systems/orderer.h"

#include <utility>

namespace leat::trusted::detail {
namespace {

// Requests that no step has yet: beyond that clients must try again.
constexpr std::size_t kMaxFreshBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxFresh = 4096;

}  // namespace

bool Orderer::take(View request) {
  if (fresh_count_ == kMaxFresh || fresh_.size() + request.size() > kMaxFreshBytes ||
      ledger_.take(request))
    return false;
  append_blob(fresh_, request);
  ++fresh_count_;
  return true;
}

Bytes Orderer::next(bool is_checkpoint, Result& result, Bytes& snapshot) {
  Step step;
  if (auto requests = read_blobs(fresh_, kMaxFresh)) step.requests = std::move(*requests);
  result.count = ledger_.execute(batch_, result.outputs);
  ledger_.keep();
  step.outputs = *Items::read(result.outputs, result.count);
  if (is_checkpoint) {
    snapshot = ledger_.save();
    result.digest = step.digest = digest_of(snapshot);
  }
  Bytes payload = write_step(step);
  fresh_.clear();
  fresh_count_ = 0;
  return payload;
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
