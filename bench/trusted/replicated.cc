// The replicated systems, every node a process: throughput with many commands under way, and the
// true latency of a request, from its signing to the quorum of answers.
#include <algorithm>
#include <array>
#include <cstdio>
#include <list>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "forked_peer.h"
#include "leat/trusted/chain.h"
#include "leat/trusted/counter.h"
#include "trusted/load.h"

namespace leat::bench {
namespace {

using namespace leat::trusted;

constexpr std::uint32_t kFirstSession = 1;
constexpr std::size_t kReplicas = 3;

// TNIC, ASPLOS 2025: thousand operations a second at batches of 1, 8 and 16 (0: not published).
// There the leader, or head, makes up the commands itself: no clients, no signatures.
struct PublishedRate {
  const char* name;
  std::array<double, 3> thousand_per_s;
};
constexpr std::array<unsigned, 3> kBatches{1, 8, 16};
constexpr std::array<PublishedRate, 5> kCounter{{{"SSL-lib", {175, 831.6, 1112}},
                                                 {"SSL-server", {22, 159.6, 291.6}},
                                                 {"SGX", {5.366, 42.04, 82.05}},
                                                 {"AMD-sev", {7.673, 59.57, 115.1}},
                                                 {"TNIC", {29.27, 210.3, 459.5}}}};
constexpr std::array<PublishedRate, 5> kChain{{{"SSL-lib", {198.6, 0, 0}},
                                               {"SSL-server", {33.81, 0, 0}},
                                               {"SGX", {8.459, 0, 0}},
                                               {"AMD-sev", {12.19, 0, 0}},
                                               {"TNIC", {42.61, 0, 0}}}};

// What a system has of its own.
struct System {
  const char* name;
  const char* title;
  Bytes command;  // and each of its outputs must be right
  bool counts;    // the last output is the sum of all commands
  const char* figure;
  const std::array<PublishedRate, 5>& published;
};
const System& system_of(const std::string& name) {
  static const System known[] = {
      {"counter", "BFT counter", CounterMachine::add(1), true, "figure 10", kCounter},
      // 60 bytes of context, as in the paper.
      {"chain", "chain replication, put()",
       KeyValueMachine::put(std::string(16, 'k'), std::string(44, 'v')), false, "figure 11",
       kChain}};
  return known[name == "chain" ? 1 : 0];
}

void run_node(PartyId id, const System& system, const Directory& directory,
              const std::vector<PartyId>& nodes, unsigned batch, const KernelHomes& homes) {
  const auto kernel = homes.open(id);
  const SigningKey key = key_of(id);
  const FaultHook hook = [](const Fault& fault) {
    std::fprintf(stderr, "node %u: %s\n", fault.accused,
                 std::string(to_string(fault.kind)).c_str());
  };
  std::unique_ptr<Participant> node;
  if (system.counts) {
    node = std::make_unique<BftReplica>(
        *kernel, directory, key, [] { return std::make_unique<CounterMachine>(); },
        BftOptions{.replicas = nodes, .first_session = kFirstSession, .batch = batch}, hook);
  } else {
    node = std::make_unique<ChainNode>(
        *kernel, directory, key, [] { return std::make_unique<KeyValueMachine>(); },
        ChainOptions{.nodes = nodes, .first_session = kFirstSession, .batch = batch}, hook);
  }
  serve(*node, directory, key,
        {.self = id, .epoch = kEpoch, .nodes = nodes, .channel = channel_options()},
        [] { return false; });
}

LoadResult measure(const System& system, unsigned batch, const TrustedArguments& arguments,
                   StepsBar& bar) {
  const Directory directory(make_parties(kReplicas));
  const std::vector<PartyId> nodes{1, 2, 3};
  static_assert(kReplicas == 3);
  const KernelHomes homes(arguments.isolated(), kReplicas, groups(kReplicas, kFirstSession));
  std::list<ForkedPeer> processes;
  for (const PartyId id : nodes)
    processes.emplace_back(
        [&, id](const ForkedPeer::Tell&) { run_node(id, system, directory, nodes, batch, homes); });

  const SigningKey key = key_of(kClient);
  ClientOptions client_options{.self = kClient,
                               .epoch = kEpoch,
                               .nodes = nodes,
                               // Two would do for the counter; but a node that falls behind must
                               // not pass for speed.
                               .quorum = kReplicas,
                               .window = kRequestsUnderWay,
                               .channel = channel_options()};
  Client client(directory, key, client_options);
  std::uint64_t sum = 0;
  const auto check = [&](const Answer& answer) {
    sum += answer.outputs.size();
    const Bytes& last = answer.outputs.back();
    if (system.counts ? CounterMachine::value_of(last) != sum
                      : KeyValueMachine::status_of(last) != KeyValueMachine::Status::kOk)
      throw std::runtime_error("a wrong answer");
  };
  return measure_load(client, system.command, check, arguments, bar);
}

}  // namespace

TrustedResult measure_replicated(const TrustedArguments& arguments) {
  const System& system = system_of(arguments.system);
  TrustedResult result;
  const std::vector<unsigned> batches = batches_of(arguments);
  StepsBar bar(system.name, batches.size());
  if (!arguments.json)
    std::printf(" %s: %zu nodes and a client, each a process; %zu commands under one signature\n",
                system.title, kReplicas, arguments.request);
  for (const unsigned batch : batches) {
    const LoadResult load = measure(system, batch, arguments, bar);
    nlohmann::ordered_json row{{"batch", batch}, {"nodes", kReplicas}};
    add_load(row, load, arguments);
    const auto column = std::ranges::find(kBatches, batch);
    const std::string name = system.name + ("_batch" + std::to_string(batch));
    result.ratios[name + "_per_s"] = load.per_s;
    if (!arguments.json)
      std::printf(
          " batch %-3u %10.1f thousand commands a second: keys in %s, nodes are processes here\n",
          batch, load.per_s * 1e-3, std::string(arguments.home()).c_str());
    for (const PublishedRate& other : system.published) {
      if (column == kBatches.end()) break;
      if (!arguments.is_like(other.name)) continue;
      const double published = other.thousand_per_s[column - kBatches.begin()];
      if (published != 0) add_published(row, other.name, published, system.figure, arguments);
    }
    result.results.push_back(std::move(row));
    if (!arguments.json) print_load(load);
  }
  return result;
}

}  // namespace leat::bench
