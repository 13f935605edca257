// PeerReview: a root, two children and, if they are audited, a witness of all three; each a
// process. Throughput with many commands under way, and the true latency of a request, from its
// signing to the root's answer, which waits for both children.
#include <cstdio>
#include <list>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "forked_peer.h"
#include "leat/trusted/counter.h"
#include "leat/trusted/peer_review.h"
#include "trusted/load.h"

namespace leat::bench {
namespace {

using namespace leat::trusted;

constexpr PartyId kNodes = 3, kWitness = 4;

// TNIC, ASPLOS 2025, figure 12: thousand messages a second, without and with the audit; there is
// no batching. There the root makes up the messages, and audits itself.
struct PublishedAudit {
  const char* name;
  double plain, audited;
};
constexpr PublishedAudit kPublishedAudits[] = {{"SSL-lib", 109.7, 81.74},
                                               {"SSL-server", 14.33, 10.73},
                                               {"SGX", 3.569, 2.677},
                                               {"AMD-sev", 5.101, 3.824},
                                               {"TNIC", 19.28, 14.46}};

PeerReviewOptions tree(unsigned batch, bool audited) {
  const std::vector<PartyId> witnesses(audited ? 1 : 0, kWitness);
  PeerReviewOptions options{.nodes = {{1, 0, witnesses}, {2, 1, witnesses}, {3, 1, witnesses}},
                            .batch = batch};
  options.audit_period = std::chrono::milliseconds(0);  // again as soon as one is over
  options.audit_records = 1024;
  return options;
}

void run_party(PartyId id, const Directory& directory, const PeerReviewOptions& options,
               const KernelHomes& homes) {
  const auto kernel = homes.open(id);
  const SigningKey key = key_of(id);
  const MachineFactory machine = [] { return std::make_unique<CounterMachine>(); };
  const StandingHook hook = [](const StandingChange& change) {
    std::fprintf(stderr, "node %u: %s\n", change.node,
                 change.standing == Standing::kTrusted
                     ? "answers again"
                     : std::string(to_string(change.fault.kind)).c_str());
  };
  std::unique_ptr<Participant> party;
  if (id == kWitness)
    party = std::make_unique<PeerWitness>(id, *kernel, directory, machine, options, hook);
  else
    party = std::make_unique<PeerNode>(*kernel, directory, key, machine, options, hook);
  ServeOptions serving{
      .self = id, .epoch = kEpoch, .nodes = {1, 2, 3}, .channel = channel_options()};
  if (!options.nodes[0].witnesses.empty()) serving.nodes.push_back(kWitness);
  serve(*party, directory, key, serving, [] { return false; });
}

LoadResult measure(unsigned batch, bool audited, const TrustedArguments& arguments, StepsBar& bar) {
  const Directory directory(make_parties(kWitness));
  const PeerReviewOptions options = tree(batch, audited);
  const PartyId last = audited ? kWitness : kNodes;
  const KernelHomes homes(arguments.isolated(), last, groups(kNodes, options.first_session));
  std::list<ForkedPeer> parties;
  for (PartyId id = 1; id <= last; ++id)
    parties.emplace_back(
        [&, id](const ForkedPeer::Tell&) { run_party(id, directory, options, homes); });

  const SigningKey key = key_of(kClient);
  Client client(directory, key,
                {.self = kClient,
                 .epoch = kEpoch,
                 .nodes = {1},
                 .quorum = 1,
                 .window = kRequestsUnderWay,
                 .channel = channel_options()});
  std::uint64_t sum = 0;
  const auto check = [&sum](const Answer& answer) {
    sum += answer.outputs.size();
    if (CounterMachine::value_of(answer.outputs.back()) != sum)
      throw std::runtime_error("the counter counts wrong");
  };
  return measure_load(client, CounterMachine::add(1), check, arguments, bar);
}

}  // namespace

TrustedResult measure_peer_review(const TrustedArguments& arguments) {
  TrustedResult result;
  const std::vector<unsigned> batches = batches_of(arguments);
  StepsBar bar("peer-review", 2 * batches.size());
  if (!arguments.json)
    std::printf(
        " PeerReview: a root, two children, a witness of all three and a client, each a process; "
        "%zu commands under one signature\n",
        arguments.request);
  for (const unsigned batch : batches) {
    for (const bool audited : {false, true}) {
      const LoadResult load = measure(batch, audited, arguments, bar);
      nlohmann::ordered_json row{{"batch", batch}, {"audited", audited}, {"nodes", kNodes}};
      add_load(row, load, arguments);
      // Published with and without audit: each beside its own kind.
      const std::string name =
          "peer_review" + std::string(audited ? "_audited" : "") + "_batch" + std::to_string(batch);
      result.ratios[name + "_per_s"] = load.per_s;
      if (!arguments.json)
        std::printf(
            " batch %-3u %s %10.1f thousand commands a second: keys in %s, nodes are processes "
            "here\n",
            batch, audited ? "audited all the time" : "not audited         ", load.per_s * 1e-3,
            std::string(arguments.home()).c_str());
      for (const PublishedAudit& system : kPublishedAudits) {
        if (arguments.is_like(system.name))
          add_published(row, system.name, audited ? system.audited : system.plain,
                        "figure 12, batch 1", arguments);
      }
      result.results.push_back(std::move(row));
      if (!arguments.json) print_load(load);
    }
  }
  return result;
}

}  // namespace leat::bench
