// How a chain begins and how its evidence is replayed, for nodes, judges and the configuration
// service.
#pragma once

#include <cstdint>

#include "leat/trusted/chain.h"
#include "trusted/parts/judge.h"
#include "trusted/parts/ledger.h"

namespace leat::trusted::detail {

// A chain as replicas of which all but one may lie.
BftOptions as_replicas(const ChainOptions& options);
// The state before the first record. Throws leat::Error kInvalidArgument if options.start is not a
// saved state.
Ledger first_ledger(const Directory& directory, std::uint64_t epoch,
                    const MachineFactory& make_machine, const ChainOptions& options);

}  // namespace leat::trusted::detail
