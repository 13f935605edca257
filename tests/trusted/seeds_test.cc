// The replicated systems under faults drawn from seeds, in simulated time: late links, lost
// connections, killed nodes, and liars. No client believes two histories, nothing believed is lost,
// no correct node is exposed, a node that attests a lie is, and service resumes when the faults
// end.
#include <gtest/gtest.h>

#include "support/scale.h"
#include "trusted/configured.h"
#include "trusted/peer_parties.h"
#include "trusted/seeds.h"

namespace leat::trusted {
namespace {

using namespace std::chrono_literals;

// Simulated: how long after the last fault all answers must have come.
constexpr auto kBound = 60s;
const Lie kLies[] = {Lie::kAttests, Lie::kReplies, Lie::kDrops,
                     Lie::kFlips,   Lie::kRepeats, Lie::kForgets};

// A node's participant, and what it needs.
struct Seeded {
  SigningKey key;
  std::unique_ptr<AttestationKernel> kernel;
  AttestedLie lie;
};

class SeededNodes {
 public:
  SeededNodes(Draw& draw, std::size_t count) : draw_(draw), nodes_(count) {
    for (PartyId id = 1; id <= count; ++id) {
      (*this)[id].key = key_of(id);
      (*this)[id].lie.tell_after(draw.below(6));
    }
  }
  Seeded& operator[](PartyId id) { return nodes_[id - 1]; }
  AttestationKernel& kernel(PartyId id, Lie lie) {
    return *((*this)[id].kernel = kernel(id, lie, kernel_of(id, nodes_.size())));
  }
  std::unique_ptr<AttestationKernel> kernel(PartyId id, Lie lie,
                                            std::unique_ptr<AttestationKernel> kernel) {
    if (lie != Lie::kAttests) return kernel;
    return std::make_unique<LyingKernel>(std::move(kernel), (*this)[id].lie);
  }
  std::unique_ptr<Participant> party(PartyId id, Lie lie, std::unique_ptr<Participant> node) {
    if (lie == Lie::kNone) return node;
    return std::make_unique<Deviant>(std::move(node), (*this)[id].key,
                                     liar_of(lie, draw_, (*this)[id].lie));
  }

 private:
  Draw& draw_;
  std::vector<Seeded> nodes_;
};

void run_bft(unsigned seed) {
  Draw draw(seed);
  const unsigned f = 1 + draw.below(2);
  const PartyId count = 2 * f + 1;
  auto options = bft_options(count, 1 + draw.below(8));
  options.checkpoint_records = 1 + draw.below(8);
  const Directory directory(parties(count));
  Schedule schedule(seed);
  SeededNodes nodes(draw, count);
  // At most f are faulty: some lie, others are killed.
  std::map<PartyId, Lie> liars;
  std::set<PartyId> killed;
  for (unsigned left = draw.below(f + 1); left > 0; --left)
    liars[1 + draw.below(count)] = kLies[draw.below(std::size(kLies))];
  std::vector<std::pair<PartyId, Fault>> faults;
  for (const PartyId id : options.replicas) {
    const Lie lie = liars.contains(id) ? liars[id] : Lie::kNone;
    AttestationKernel& kernel = nodes.kernel(id, lie);
    schedule.add(
        id, nodes.party(id, lie,
                        std::make_unique<BftReplica>(kernel, directory, nodes[id].key, make_counter,
                                                     options, [&faults, id](const Fault& fault) {
                                                       faults.emplace_back(id, fault);
                                                     })));
  }
  AddingClients clients(schedule, draw);
  for (const PartyId id : {kClient, kOtherClient})
    clients.add(id, std::make_unique<ScheduledClient>(id, directory, options.replicas, f + 1,
                                                      kSystemEpoch));
  const bool faulty_links = draw.chance(75);
  run_with_faults(schedule, draw, clients, options.replicas, faulty_links, [&] {
    const PartyId id = 1 + draw.below(count);
    if (!draw.chance(10) || killed.contains(id) || liars.contains(id) ||
        killed.size() + liars.size() == f)
      return;
    schedule.kill(id);
    killed.insert(id);
  });
  const bool has_leader = !killed.contains(1) && !liars.contains(1);
  if (has_leader) {
    EXPECT_TRUE(schedule.run_until([&] { return clients.take(); }, kBound)) << "no answer";
  } else {
    schedule.run(2s);
  }
  clients.take();
  const auto is_correct = [&](PartyId id) { return !liars.contains(id) && !killed.contains(id); };
  for (const auto& [by, fault] : faults)
    EXPECT_FALSE(is_correct(by) && is_correct(fault.accused) && fault.kind != FaultKind::kSilent)
        << by << " exposes " << fault.accused << ": " << to_string(fault.kind);
  for (const auto& told : liars) {
    const PartyId liar = told.first;
    if (!nodes[liar].lie.is_told()) continue;
    EXPECT_TRUE(std::ranges::any_of(faults,
                                    [&](const auto& fault) {
                                      return is_correct(fault.first) &&
                                             fault.second.accused == liar &&
                                             fault.second.kind != FaultKind::kSilent;
                                    }))
        << liar << " attested a lie, and nobody exposes it";
  }
}

TEST(SeededFaults, bft_keeps_one_history_and_resumes) {
  for_seeds(static_cast<unsigned>(leat::detail::scaled(3000)), run_bft);
}

void run_chain(unsigned seed) {
  Draw draw(seed);
  const bool two_liars = draw.chance(50);
  ConfigurationOptions options{.service = kService,
                               .pool = {2, 3, 4, 5, 6},
                               .length = 3,
                               .liars = two_liars ? 2U : 1U,
                               .chain = {.first_session = kFirstSession,
                                         .batch = 1 + draw.below(8),
                                         .checkpoint_records = 1 + draw.below(8)},
                               .patience = 400ms};
  const Directory directory(parties(kParties));
  Schedule schedule(seed);
  SeededNodes nodes(draw, kParties);
  std::map<PartyId, Lie> liars;
  for (unsigned left = draw.below(two_liars ? 3 : 2); left > 0; --left)
    liars[2 + draw.below(kParties - 1)] = kLies[draw.below(std::size(kLies))];
  PartyId killed = 0;  // beside two liars none may be silent
  std::vector<Fault> faults;
  const auto member = [&](PartyId id) -> std::unique_ptr<Participant> {
    const Lie lie = liars.contains(id) ? liars[id] : Lie::kNone;
    const auto kernels = [&nodes, id, lie, make = kernels_of(id)](const Configuration& its) {
      return nodes.kernel(id, lie, make(its));
    };
    return nodes.party(id, lie,
                       std::make_unique<ChainMember>(id, directory, nodes[id].key, make_counter,
                                                     kernels, options));
  };
  schedule.add(kService, std::make_unique<ConfigurationService>(
                             directory, nodes[kService].key, make_counter, kernels_of(kService),
                             options, ConfigurationService::Hook(),
                             [&faults](const Fault& fault) { faults.push_back(fault); }));
  for (const PartyId id : options.pool) schedule.add(id, member(id));
  AddingClients clients(schedule, draw);
  for (const PartyId id : {kClient, kOtherClient})
    clients.add(id, std::make_unique<ScheduledClient>(id, directory, std::vector<PartyId>{}, 0, 0,
                                                      kService));
  auto all = options.pool;
  all.push_back(kService);
  const bool faulty_links = draw.chance(75);
  run_with_faults(schedule, draw, clients, all, faulty_links, [&] {
    if (killed != 0 && draw.chance(20)) {
      schedule.add(killed, member(killed));  // it has lost everything
    } else if (killed == 0 && !two_liars && draw.chance(10)) {
      const PartyId id = 2 + draw.below(kParties - 1);
      if (liars.contains(id)) return;
      schedule.kill(id);
      killed = id;
    }
  });
  EXPECT_TRUE(schedule.run_until([&] { return clients.take(); }, 2 * kBound)) << "no answer";
  std::set<PartyId> exposed;
  for (const Fault& fault : faults)
    if (fault.kind != FaultKind::kSilent) exposed.insert(fault.accused);
  for (const PartyId id : exposed) EXPECT_TRUE(liars.contains(id)) << id << " is exposed";
  // A lie that is late may be about an epoch that has ended, with all that was told there.
  if (liars.size() == 1 && nodes[liars.begin()->first].lie.is_told() && !faulty_links &&
      killed == 0) {
    EXPECT_TRUE(exposed.contains(liars.begin()->first)) << "attested a lie, and is not exposed";
  }
}

TEST(SeededFaults, chain_keeps_one_history_and_is_replaced) {
  for_seeds(static_cast<unsigned>(leat::detail::scaled(3000)), run_chain);
}

void run_peer_review(unsigned seed) {
  Draw draw(seed);
  auto options = tree_options(1 + draw.below(8));
  options.checkpoint_records = 1 + draw.below(16);
  options.audit_records = 1 + draw.below(16);
  options.patience = 500ms;
  options.audit_period = 500ms;
  const Directory directory(parties(kTreeParties));
  Schedule schedule(seed);
  SeededNodes nodes(draw, kTreeParties);
  std::map<PartyId, Lie> liars;
  if (draw.chance(60)) liars[1 + draw.below(3)] = kLies[draw.below(std::size(kLies))];
  std::map<PartyId, std::set<PartyId>> exposed;  // by whom
  const auto hook = [&exposed](PartyId by) {
    return [&exposed, by](const StandingChange& change) {
      if (change.standing == Standing::kExposed) exposed[change.node].insert(by);
    };
  };
  for (PartyId id = 1; id <= 3; ++id) {
    const Lie lie = liars.contains(id) ? liars[id] : Lie::kNone;
    AttestationKernel& kernel = nodes.kernel(id, lie);
    schedule.add(id, nodes.party(id, lie,
                                 std::make_unique<PeerNode>(kernel, directory, nodes[id].key,
                                                            make_counter, options, hook(id))));
  }
  auto witness = std::make_unique<PeerWitness>(kWitness, nodes.kernel(kWitness, Lie::kNone),
                                               directory, make_counter, options, hook(kWitness));
  schedule.add(kWitness, std::move(witness));
  AddingClients clients(schedule, draw);
  const std::vector<PartyId> answering{1, 2, 3};
  for (const PartyId id : {kClient, kOtherClient}) {
    auto client = std::make_unique<ScheduledClient>(id, directory, answering, 3, kSystemEpoch);
    client->witness = kWitness;
    clients.add(id, std::move(client));
  }
  run_with_faults(schedule, draw, clients, {1, 2, 3, kWitness}, draw.chance(75), [] {});
  clients.hand_in_again();
  if (liars.empty()) {
    EXPECT_TRUE(schedule.run_until([&] { return clients.take(); }, kBound)) << "no answer";
  } else {
    schedule.run(3s);
  }
  clients.take();
  for (const auto& [node, by] : exposed) {
    EXPECT_TRUE(liars.contains(node)) << node << " is exposed";
  }
  for (const auto& [liar, lie] : liars) {
    if (nodes[liar].lie.is_told()) {
      EXPECT_TRUE(exposed[liar].contains(kWitness)) << liar << " attested a lie";
    }
  }
  for (const PartyId liar : clients.who_lied(directory))
    EXPECT_TRUE(exposed[liar].contains(kWitness)) << liar << " lied to a client";
}

TEST(SeededFaults, peer_review_exposes_liars_and_nobody_else) {
  for_seeds(static_cast<unsigned>(leat::detail::scaled(2000)), run_peer_review);
}

}  // namespace
}  // namespace leat::trusted
