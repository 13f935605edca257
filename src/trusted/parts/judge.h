// Computes what a correct node says, for comparison with what a node did say.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "leat/trusted/counter.h"
#include "trusted/parts/ledger.h"

namespace leat::trusted::detail {

// The place of a replica in the options, and of the one on whose session a record is; the number of
// replicas if there is no such one.
std::size_t index_of(const BftOptions& options, PartyId id);
std::size_t sender_of(const BftOptions& options, const RecordHeader& record);

// Checks and executes one record of the leader or head. No value if it is right. At a checkpoint
// sets `snapshot` to the state after it.
std::optional<FaultKind> execute_record(Ledger& ledger, View payload, unsigned batch,
                                        bool is_checkpoint, Bytes& snapshot);

// What evidence proves when it is replayed.
struct Replayed {
  std::uint64_t records = 0;  // of the leader, all of them right
  struct Finding {
    std::size_t index = 0;  // of the accused replica
    FaultKind kind{};
  };
  std::optional<Finding> fault;
};
// `ledger`: in, the first state; out, the last. No value if a correct replica does not say this.
std::optional<Replayed> replay(AttestationKernel& kernel, const BftOptions& options, View evidence,
                               Ledger& ledger);

// Whether another node's attested payload has the right form and says the same.
std::optional<FaultKind> check_executed(View payload, View outputs, std::size_t count,
                                        const std::optional<StateDigest>& digest);

}  // namespace leat::trusted::detail
