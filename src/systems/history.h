// What a replica keeps to prove to others what somebody did: a state that f+1 replicas attested,
// and the leader's records since.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "systems/messages.h"

namespace leat::trusted::detail {

class History {
 public:
  // `vouchers`: f + 1.
  explicit History(std::size_t vouchers) : vouchers_(vouchers) {}

  // The leader's record with the next counter. `snapshot`, if a checkpoint: the state after it.
  void add(View record, Bytes* snapshot);
  // A record of a replica, this one included, with the digest of the checkpoint at `counter` that
  // is the right one.
  void vouch(std::uint64_t counter, PartyId replica, View record);

  // The evidence against who attested `record`; it is the leader's next record if `by_leader`.
  Bytes evidence(View record, bool by_leader) const;
  // The same against nobody: proves what was executed.
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

// The parts of evidence, which are anything: nothing but lengths was looked at.
struct Evidence {
  View snapshot;
  std::vector<View> vouchers;
  std::vector<View> records;
  View accusing;  // a follower's record; empty: the last of `records` is what accuses
};
std::optional<Evidence> read_evidence(View evidence);

}  // namespace leat::trusted::detail
