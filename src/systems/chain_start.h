// How a chain begins, and how its evidence is replayed: for the nodes, for judges and for the
// configuration service alike.
#pragma once

#include <cstdint>

#include "leat/trusted/chain.h"
#include "systems/judge.h"
#include "systems/ledger.h"

namespace leat::trusted::detail {

// A chain as replicas of which all but one may lie.
BftOptions as_replicas(const ChainOptions& options);
// The state before the first record. Throws leat::Error kInvalidArgument: options.start is none.
Ledger first_ledger(const Directory& directory, std::uint64_t epoch,
                    const MachineFactory& make_machine, const ChainOptions& options);

}  // namespace leat::trusted::detail
