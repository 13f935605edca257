// What leat-bench attest sends: messages from one process to another, attested or not.
#pragma once

#include <functional>
#include <string>

#include "arguments.h"
#include "leat/options.h"
#include "machine.h"
#include "measure.h"

namespace leat::bench {

// For each size: the bandwidth of a stream one way, then half round trips.
using Sent = std::function<void(const Bandwidth& stream, const Latency& half_round_trips)>;
void measure_sends(const Options& options, const RunArguments& arguments,
                   const std::optional<CorePair>& cores, const TickClock& clock,
                   const Progress& progress, const Sent& sent);

}  // namespace leat::bench
