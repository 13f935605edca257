// The pure part of BFT: replicas and clients in this process, on a network that delivers in any
// order.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

#include "support/scale.h"
#include "trusted/parties.h"
#include "trusted/parts/messages.h"
#include "trusted/parts/quorum.h"

namespace leat::trusted {
namespace {

using namespace detail;

// Replicas with their kernels, one client, and links that are first in, first out.
class World final {
 public:
  World(std::size_t nodes, const BftOptions& options)
      : nodes_(nodes),
        options_(options),
        directory_(parties_of(nodes)),
        client_key_(key_of(kClient)) {
    for (PartyId id = 1; id <= nodes; ++id) {
      keys_.push_back(key_of(id));
      kernels_.push_back(kernel_of(id, nodes));
    }
    for (PartyId id = 1; id <= nodes; ++id)
      replicas_.push_back(std::make_unique<BftReplica>(
          *kernels_[id - 1], directory_, keys_[id - 1], make_counter, options_,
          [this, id](const Fault& fault) { faults.emplace_back(id, fault); }));
    ClientOptions client{.self = kClient, .epoch = kSystemEpoch, .quorum = options.faults + 1};
    client.nodes = options.replicas;
    client.window = 16;
    quorum_ = std::make_unique<Quorum>(directory_, client_key_, client, 1000);
  }

  Quorum& client() { return *quorum_; }
  BftReplica& replica(PartyId id) { return *replicas_[id - 1]; }
  AttestationKernel& kernel(PartyId id) { return *kernels_[id - 1]; }
  const Directory& directory() const { return directory_; }
  const BftOptions& options() const { return options_; }

  void send(PartyId from, PartyId to, View message) {
    links_[{from, to}].emplace_back(message.begin(), message.end());
  }
  void cut(PartyId from, PartyId to) { cut_.emplace_back(from, to); }

  // Delivers everything, in an order of chance.
  void run(std::mt19937& random) {
    for (;;) {
      std::vector<std::pair<PartyId, PartyId>> ready;
      for (const auto& [link, messages] : links_)
        if (!messages.empty()) ready.push_back(link);
      if (ready.empty()) {
        for (PartyId id = 1; id <= nodes_; ++id) {
          Sender outbox(*this, id);
          replica(id).idle(now, outbox);
        }
        if (std::ranges::all_of(links_, [](const auto& link) { return link.second.empty(); }))
          return;
        continue;
      }
      const auto link = ready[random() % ready.size()];
      const Bytes message = std::move(links_[link].front());
      links_[link].pop_front();
      if (link.second == kClient) {
        quorum_->receive(message);
      } else if (link.second <= nodes_) {
        Sender outbox(*this, link.second);
        replica(link.second).receive(link.first, message, now, outbox);
        if (random() % 3 == 0) replica(link.second).settle(now, outbox);  // or with what comes next
      }
    }
  }

  std::vector<std::pair<PartyId, Fault>> faults;
  Participant::Time now{};

 private:
  struct Sender final : Outbox {
    Sender(World& its_world, PartyId its_from) : world(its_world), from(its_from) {}
    void send(PartyId to, View message) override {
      if (std::ranges::find(world.cut_, std::pair(from, to)) == world.cut_.end())
        world.send(from, to, message);
    }
    World& world;
    PartyId from;
  };
  static std::vector<Party> parties_of(std::size_t nodes) {
    std::vector<Party> all;
    for (PartyId id = 1; id <= nodes; ++id) all.push_back({id, key_of(id).public_key(), "a:1"});
    for (const PartyId id : {kClient, kOtherClient})
      all.push_back({id, key_of(id).public_key(), {}});
    return all;
  }

  const std::size_t nodes_;
  const BftOptions options_;
  const Directory directory_;
  const SigningKey client_key_;
  std::vector<SigningKey> keys_;
  std::vector<std::unique_ptr<LocalKernel>> kernels_;
  std::vector<std::unique_ptr<BftReplica>> replicas_;
  std::unique_ptr<Quorum> quorum_;
  std::map<std::pair<PartyId, PartyId>, std::deque<Bytes>> links_;
  std::vector<std::pair<PartyId, PartyId>> cut_;
};

TEST(Bft, replicas_agree_and_clients_get_each_answer_once_in_any_order_of_delivery) {
  for (const auto& [nodes, batch] : {std::pair{3, 1U}, {3, 8U}, {5, 16U}, {1, 8U}}) {
    std::mt19937 random(batch);
    auto options = bft_options(nodes, batch);
    options.checkpoint_records = 4;
    World world(nodes, options);
    std::uint64_t sum = 0;
    for (int round = 0; round < 3; ++round) {
      for (int request = 0; request < 4; ++request)
        world.send(kClient, 1, world.client().submit(additions(1 + random() % 40, 3)));
      world.run(random);
      for (int request = 0; request < 4; ++request) {
        const auto answer = world.client().take();
        ASSERT_TRUE(answer);
        for (const Bytes& output : answer->outputs)
          EXPECT_EQ(CounterMachine::value_of(output), sum += 3);
      }
    }
    for (PartyId id = 1; id <= static_cast<PartyId>(nodes); ++id)
      EXPECT_EQ(world.replica(id).save(), world.replica(1).save());
    EXPECT_TRUE(world.faults.empty());
  }
}

TEST(Bft, a_short_batch_is_attested_like_a_full_one) {
  std::mt19937 random(1);
  World world(3, bft_options(3, 8));
  world.send(kClient, 1, world.client().submit(additions(21)));
  world.run(random);
  EXPECT_EQ(world.replica(3).executed_records(), 3U);  // 8, 8 and 5
  EXPECT_TRUE(world.client().take());
}

TEST(Bft, who_hears_nothing_of_the_leader_learns_from_those_who_do) {
  std::mt19937 random(2);
  World world(3, bft_options(3));
  world.cut(1, 3);
  world.send(kClient, 1, world.client().submit(additions(5)));
  world.run(random);
  EXPECT_EQ(world.replica(3).save(), world.replica(1).save());
  EXPECT_TRUE(world.client().take());
}

// A liar passes on what another follower proved, without the leader's record, which is late.
TEST(Bft, a_proof_that_comes_before_the_record_exposes_nobody_and_is_checked_later) {
  std::mt19937 random(22);
  World world(3, bft_options(3));
  world.cut(1, 2);
  world.cut(3, 2);
  const auto prove = [&](std::uint64_t value) {
    Bytes outputs;
    Items::append(outputs, CounterMachine::add(value));
    const Bytes record =
        attest(world.kernel(2), {.session = kFirstSession + 1},
               write_step({.requests = {}, .outputs = *Items::read(outputs, 1), .digest = {}}));
    world.send(1, 3, write_blobs(MessageType::kExecuted, {record}));
    world.run(random);
  };
  prove(1);
  prove(77);  // 2 will be right
  EXPECT_TRUE(world.faults.empty());
  world.send(kClient, 1, world.client().submit(additions(1)));
  world.run(random);
  EXPECT_TRUE(world.client().take());
  EXPECT_TRUE(world.faults.empty());
  world.send(kClient, 1, world.client().submit(additions(1)));
  world.run(random);
  EXPECT_TRUE(world.client().take());
  ASSERT_FALSE(world.faults.empty());
  for (const auto& [by, fault] : world.faults) {
    EXPECT_EQ(fault.accused, 2U);
    EXPECT_EQ(fault.kind, FaultKind::kOutput);
  }
}

// Two followers lie, to one correct replica only; the others learn of both from it.
TEST(Bft, a_replica_that_accuses_two_liars_is_heard_twice) {
  std::mt19937 random(21);
  World world(5, bft_options(5));
  for (PartyId from = 1; from <= 3; ++from)
    for (const PartyId liar : {4U, 5U}) world.cut(from, liar);
  world.send(kClient, 1, world.client().submit(additions(1)));
  world.run(random);
  Bytes outputs;
  Items::append(outputs, CounterMachine::add(77));
  for (const PartyId liar : {4U, 5U}) {
    const Bytes record =
        attest(world.kernel(liar), {.session = kFirstSession + liar - 1},
               write_step({.requests = {}, .outputs = *Items::read(outputs, 1), .digest = {}}));
    world.send(liar, 2, write_blobs(MessageType::kExecuted, {record}));
    world.run(random);
  }
  for (const PartyId by : {1U, 2U, 3U})
    for (const PartyId liar : {4U, 5U})
      EXPECT_EQ(std::ranges::count_if(world.faults,
                                      [&](const auto& fault) {
                                        return fault.first == by && fault.second.accused == liar &&
                                               fault.second.kind == FaultKind::kOutput;
                                      }),
                1)
          << by << " of " << liar;
}

// Evidence that relies on a checkpoint convinces a party that was not there.
TEST(Bft, evidence_after_checkpoints_convinces_a_third_node_and_altered_evidence_nobody) {
  std::mt19937 random(3);
  auto options = bft_options(3);
  options.checkpoint_records = 4;
  World world(3, options);
  world.send(kClient, 1, world.client().submit(additions(10)));
  world.run(random);
  // The leader attests an output that is wrong, as its eleventh record.
  const SigningKey key = key_of(kClient);
  Quorum forger(world.directory(), key,
                {.self = kClient, .epoch = kSystemEpoch, .nodes = {1, 2, 3}, .quorum = 2}, 5000);
  Bytes outputs;
  Items::append(outputs, CounterMachine::add(12));
  const Bytes request = forger.submit(additions(1));
  const Bytes record = attest(world.kernel(1), {.session = kFirstSession},
                              write_step({{View(request)}, *Items::read(outputs, 1), {}}));
  world.send(1, 2, write_order(record));
  const Bytes before = world.replica(2).save();
  world.run(random);

  EXPECT_EQ(world.replica(2).save(), before) << "nothing was executed";
  ASSERT_EQ(world.faults.size(), 2U);  // at 2, and at 3 by the evidence of 2
  const Fault& fault = world.faults.front().second;
  EXPECT_EQ(fault.accused, 1U);
  EXPECT_EQ(fault.kind, FaultKind::kOutput);
  EXPECT_EQ(world.faults.back().first, 3U);

  const auto third = kernel_of(9, 3);
  const auto verdict = judge(*third, world.directory(), make_counter, options, fault.evidence);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->accused, 1U);
  EXPECT_EQ(verdict->kind, FaultKind::kOutput);
  for (std::size_t i = 0; i < fault.evidence.size(); i += 1 + random() % 5) {
    Bytes altered = fault.evidence;
    altered[i] ^= std::byte{1};
    EXPECT_FALSE(judge(*third, world.directory(), make_counter, options, altered)) << i;
    altered.resize(i);
    EXPECT_FALSE(judge(*third, world.directory(), make_counter, options, altered)) << i;
  }
}

TEST(Bft, a_step_that_is_undone_leaves_nothing) {
  World world(3, bft_options(3, 8));
  std::mt19937 random(4);
  world.send(kClient, 1, world.client().submit(additions(6)));
  world.run(random);
  const Bytes before = world.replica(3).save();
  const Bytes good = world.client().submit(additions(2));
  Bytes bad = world.client().submit(additions(2));
  bad.back() ^= std::byte{1};
  Bytes outputs;
  for (std::uint64_t value = 7; value < 11; ++value)
    Items::append(outputs, CounterMachine::add(value));
  const Bytes record = attest(world.kernel(1), {.session = kFirstSession},
                              write_step({{View(good), View(bad)}, *Items::read(outputs, 4), {}}));
  world.send(1, 3, write_order(record));
  world.run(random);
  ASSERT_FALSE(world.faults.empty());
  EXPECT_EQ(world.faults.front().second.kind, FaultKind::kRequest);
  EXPECT_EQ(world.replica(3).save(), before);
}

TEST(Bft, replicas_that_cannot_be_are_refused) {
  const Directory directory(parties(3));
  const auto kernel = kernel_of(1, 3);
  const SigningKey key = key_of(1);
  auto options = bft_options(3);
  options.faults = 2;
  EXPECT_THROW(BftReplica(*kernel, directory, key, make_counter, options), Error);
  options = bft_options(3);
  options.first_session = 2;
  EXPECT_THROW(BftReplica(*kernel, directory, key, make_counter, options), Error);
  options = bft_options(3);
  options.batch = 0;
  EXPECT_THROW(BftReplica(*kernel, directory, key, make_counter, options), Error);
}

}  // namespace
}  // namespace leat::trusted
