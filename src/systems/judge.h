// What a correct node says, for comparison with what a node did say.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "systems/ledger.h"

namespace leat::trusted::detail {

// One record of the leader or head, checked and executed: no value if it is right. At a checkpoint
// sets `snapshot` to the state after it.
std::optional<FaultKind> execute_record(Ledger& ledger, View payload, unsigned batch,
                                        bool is_checkpoint, Bytes& snapshot);
// Whether what another node attested has the right form, and says the same.
std::optional<FaultKind> check_executed(View payload, View outputs, std::size_t count,
                                        const std::optional<StateDigest>& digest);

}  // namespace leat::trusted::detail
