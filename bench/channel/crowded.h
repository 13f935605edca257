// leat-bench pingpong --crowded: round trips where the two sides do not have a core each, beside
// those of plain TCP in the same places.
#pragma once

#include "arguments.h"

namespace leat::bench {

// Throws std::runtime_error if a side fails.
void run_crowded(const ChannelArguments& arguments);

}  // namespace leat::bench
