// What a replica keeps as evidence against others: a state that f+1 replicas attested, and the
// leader's records since.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "trusted/parts/messages.h"

namespace leat::trusted::detail {

class History {
 public:
  // `vouchers`: f + 1.
  explicit History(std::size_t vouchers) : vouchers_(vouchers) {}

  // Adds the leader's record with the next counter. `snapshot`, at a checkpoint: the state after
  // it.
  void add(View record, Bytes* snapshot);
  // Adds a record of a replica, possibly this one, with the right digest of the checkpoint at
  // `counter`.
  void vouch(std::uint64_t counter, PartyId replica, View record);

  // The evidence against the node that attested `record`, which is the leader's next record if
  // `by_leader`.
  Bytes evidence(View record, bool by_leader) const;
  // The same without an accused: proves what was executed.
  Bytes proof() const { return evidence({}, false); }

 private:
  struct Checkpoint {
    Bytes snapshot;
    std::map<PartyId, Bytes> records;
  };

  const std::size_t vouchers_;
  std::deque<Bytes> records_;  // since the stable checkpoint
  std::uint64_t next_ = 0;     // counter of the next record
  Checkpoint stable_;          // empty: the first state
  std::map<std::uint64_t, Checkpoint> candidates_;
};

// The parts of evidence, which may be any bytes: only lengths were checked.
struct Evidence {
  View snapshot;
  std::vector<View> vouchers;
  std::vector<View> records;
  View accusing;  // a follower's record; empty: the last of `records` accuses
};
std::optional<Evidence> read_evidence(View evidence);

}  // namespace leat::trusted::detail
