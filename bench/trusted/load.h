// What the benchmarks of trusted systems share: the parties, and the load of one client.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "leat/attest/attestation.h"
#include "leat/attest/identity.h"
#include "leat/options.h"
#include "leat/trusted/client.h"
#include "measure.h"
#include "steps_bar.h"
#include "trusted/kernel_homes.h"
#include "trusted/trusted.h"

namespace leat::bench {

inline constexpr std::uint64_t kEpoch = 1;
inline constexpr trusted::PartyId kClient = 101;
inline constexpr std::size_t kRequestsUnderWay = 8;

// The batches that are measured: one, or those of the papers' figures.
std::vector<unsigned> batches_of(const TrustedArguments& arguments);

// Everybody's, from its number.
trusted::SigningKey key_of(trusted::PartyId id);
// Nodes 1 to `nodes`, at ports of their own, and the client.
std::vector<trusted::Party> make_parties(trusted::PartyId nodes);
// For more processes than cores.
leat::Options channel_options();
// One group session for each of senders 1 to `senders`, from `first_session` on.
KernelHomes::Provision groups(trusted::PartyId senders, std::uint32_t first_session);

struct LoadResult {
  double per_s = 0;                // commands
  double cpu_us = 0;               // for each command, of all processes
  double switches = 0;             // the same: from one process or thread to another
  Latency::Distribution loaded{};  // of whole requests, while many are under way
  Latency::Distribution alone{};   // of requests of one command, one at a time
};

// Sends requests of arguments.request times the same command, arguments.commands in all. `check`
// gets every answer and throws at a wrong one. Moves the bar by one step.
LoadResult measure_load(trusted::Client& client, const trusted::Bytes& command,
                        const std::function<void(const trusted::Answer&)>& check,
                        const TrustedArguments& arguments, StepsBar& bar);

// Adds what every system's row has.
void add_load(nlohmann::ordered_json& row, const LoadResult& load,
              const TrustedArguments& arguments);
// Its cost and the true latency, for people.
void print_load(const LoadResult& load);

}  // namespace leat::bench
