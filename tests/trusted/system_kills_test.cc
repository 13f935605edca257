// Any one node is killed at any point: no client accepts a wrong answer, no correct node is
// exposed, and what the protocol promises to survive is survived.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <random>
#include <thread>

#include "leat/error.h"
#include "leat/trusted/chain.h"
#include "trusted/nodes.h"

namespace leat::trusted {
namespace {

using namespace std::chrono_literals;

TEST(SystemKills, a_bft_system_survives_any_follower_and_says_so_if_the_leader_is_gone) {
  std::mt19937 random(5);
  for (std::size_t round = 0; round < kills(10); ++round) {
    Nodes nodes(3);
    for (const PartyId id : nodes.ids())
      nodes.start(
          id, [&](PartyId, AttestationKernel& kernel, const SigningKey& key, FaultHook hook) {
            return std::make_unique<BftReplica>(kernel, nodes.directory(), key, make_counter,
                                                bft_options(3, 4), std::move(hook));
          });
    const PartyId victim = 1 + static_cast<PartyId>(random() % 3);
    const SigningKey key = key_of(kClient);
    ClientOptions options = nodes.client_options(2);
    options.retry_after = 100ms;
    if (victim == 1) options.timeout = 300ms;
    Client client(nodes.directory(), key, options);
    client.call(additions(1));
    std::jthread killer = nodes.kill_soon(victim, random);
    std::uint64_t expected = 1;
    try {
      // Some while after the kill too.
      const auto until = std::chrono::steady_clock::now() + 40ms;
      while (std::chrono::steady_clock::now() < until) {
        const std::size_t count = 1 + random() % 10;
        for (const Bytes& output : client.call(additions(count)))
          ASSERT_EQ(CounterMachine::value_of(output), ++expected) << "round " << round;
      }
      client.call(additions(1));
    } catch (const Error& error) {
      EXPECT_EQ(victim, 1U) << "round " << round << ": " << error.what();
      EXPECT_EQ(error.code(), ErrorCode::kTimeout) << error.what();
    }
    killer.join();
    const auto report = nodes.report(0ms);
    EXPECT_FALSE(report && report->fault.kind != FaultKind::kSilent) << "round " << round;
  }
}

// A chain has no answers without any of its nodes, and no wrong ones.
TEST(SystemKills, a_chain_gives_no_wrong_answer_whichever_node_is_killed) {
  std::mt19937 random(6);
  for (std::size_t round = 0; round < kills(10); ++round) {
    Nodes nodes(3);
    for (const PartyId id : nodes.ids())
      nodes.start(
          id, [&](PartyId, AttestationKernel& kernel, const SigningKey& key, FaultHook hook) {
            return std::make_unique<ChainNode>(
                kernel, nodes.directory(), key, [] { return std::make_unique<KeyValueMachine>(); },
                ChainOptions{.nodes = {1, 2, 3}, .first_session = kFirstSession, .batch = 4},
                std::move(hook));
          });
    const SigningKey key = key_of(kClient);
    ClientOptions options = nodes.client_options(3);
    options.retry_after = 50ms;
    Client patient(nodes.directory(), key, options);
    patient.call(std::vector<Bytes>{KeyValueMachine::put("key", "0")});
    options.timeout = 200ms;
    Client hasty(nodes.directory(), key, options);
    std::jthread killer = nodes.kill_soon(1 + static_cast<PartyId>(random() % 3), random);
    try {
      for (int i = 1;; ++i) {
        const auto outputs = hasty.call(std::vector<Bytes>{
            KeyValueMachine::get("key"), KeyValueMachine::put("key", std::to_string(i))});
        ASSERT_EQ(KeyValueMachine::value_of(outputs[0]), std::to_string(i - 1));
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTimeout) << error.what();
    }
    killer.join();
    const auto report = nodes.report(0ms);
    EXPECT_FALSE(report && report->fault.kind != FaultKind::kSilent) << "round " << round;
  }
}

}  // namespace
}  // namespace leat::trusted
