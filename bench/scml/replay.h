// The communication of a secure machine learning task without its arithmetic.
#pragma once

#include <string>
#include <vector>

#include "leat/options.h"
#include "leat/scml/party.h"
#include "leat/scml/planner.h"

namespace leat::bench {

struct ReplayOptions {
  scml::Carrier carrier = scml::Carrier::kPlanned;
  Options options;
  std::vector<int> cpus;  // one for each party; empty: not pinned
  std::uint64_t warmup = 1;
  std::uint64_t batches = 1;
  bool verify = false;
};

// Every party is a process of its own, forked here. All of them move the messages of the plan, step
// by step: in each round of a placement they send what is theirs, out of one prepared buffer, then
// receive, and look at every cache line that they received once. Returns the time of each batch in
// milliseconds, from a barrier to a barrier. Throws if any party fails.
std::vector<double> replay(const scml::Plan& plan, const ReplayOptions& options);

}  // namespace leat::bench
