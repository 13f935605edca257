#include "trusted/parts/history.h"

#include <algorithm>

namespace leat::trusted::detail {
namespace {

constexpr std::size_t kMostRecords = std::size_t{1} << 20;

void append_list(Bytes& evidence, const std::vector<View>& blobs) {
  Bytes list;
  for (const View blob : blobs) append_blob(list, blob);
  append_blob(evidence, list);
}

}  // namespace

void History::add(View record, Bytes* snapshot) {
  records_.emplace_back(record.begin(), record.end());
  if (snapshot != nullptr) candidates_[next_].snapshot = std::move(*snapshot);
  ++next_;
}

void History::vouch(std::uint64_t counter, PartyId replica, View record) {
  const auto found = candidates_.find(counter);
  if (found == candidates_.end()) return;  // not there yet, or older than the stable one
  found->second.records.try_emplace(replica, record.begin(), record.end());
  if (found->second.records.size() < vouchers_) return;
  stable_ = std::move(found->second);
  const std::uint64_t first = next_ - records_.size();
  records_.erase(records_.begin(),
                 records_.begin() + static_cast<std::ptrdiff_t>(counter + 1 - first));
  candidates_.erase(candidates_.begin(), std::next(found));
}

// Four blobs: snapshot, list of vouchers, list of the leader's records, a follower's record.
Bytes History::evidence(View record, bool by_leader) const {
  Bytes evidence{static_cast<std::byte>(MessageType::kEvidence)};
  append_blob(evidence, stable_.snapshot);
  std::vector<View> list;
  for (const auto& [replica, voucher] : stable_.records) list.emplace_back(voucher);
  append_list(evidence, list);
  list.assign(records_.begin(), records_.end());
  if (by_leader) list.push_back(record);
  append_list(evidence, list);
  append_blob(evidence, by_leader ? View() : record);
  return evidence;
}

std::optional<Evidence> read_evidence(View evidence) {
  if (type_of(evidence) != MessageType::kEvidence) return std::nullopt;
  const auto blobs = read_blobs(evidence.subspan(1), 4);
  if (!blobs || blobs->size() != 4) return std::nullopt;
  auto vouchers = read_blobs((*blobs)[1], kMostRecords);
  auto records = read_blobs((*blobs)[2], kMostRecords);
  if (!vouchers || !records) return std::nullopt;
  return Evidence{(*blobs)[0], std::move(*vouchers), std::move(*records), (*blobs)[3]};
}

}  // namespace leat::trusted::detail
