// The process around a node: who connects, and who gets in.
#include <gtest/gtest.h>

#include <chrono>
#include <list>
#include <random>
#include <thread>

#include "leat/error.h"
#include "leat/listener.h"
#include "trusted/doubles.h"
#include "trusted/relay.h"

namespace leat::trusted {
namespace {

Nodes::Make correct_replica(const Directory& directory) {
  return [&directory](PartyId, AttestationKernel& kernel, const SigningKey& key, FaultHook hook) {
    return std::make_unique<BftReplica>(kernel, directory, key, make_counter, bft_options(3),
                                        std::move(hook));
  };
}

leat::Channel connected_to(const Nodes& nodes, PartyId node) {
  leat::Options options = nodes.client_options(1).channel;
  options.ring_bytes = 64 << 10;
  options.timeout = kLong;
  return leat::Channel::connect("leat://" + nodes.directory().find(node)->address, options);
}

// Whether it ends the connection, in order, without a word but its challenge.
bool turns_away(leat::Channel& silent) { return silent.receive() && !silent.receive(); }

TEST(Serve, silent_connections_lock_no_client_out) {
  Nodes nodes(3);
  for (const PartyId id : nodes.ids()) nodes.start(id, correct_replica(nodes.directory()));
  Client early = nodes.connect(2);
  early.call(additions(1));
  std::list<leat::Channel> silent;
  for (std::size_t i = 0; i < ServeOptions::kMostStrangers + 6; ++i)
    for (const PartyId node : {1U, 2U}) silent.push_back(connected_to(nodes, node));
  Client client = nodes.connect(2, kOtherClient);
  EXPECT_EQ(CounterMachine::value_of(client.call(additions(1)).back()), 2U);
  EXPECT_EQ(CounterMachine::value_of(early.call(additions(1)).back()), 3U);
  EXPECT_TRUE(turns_away(silent.front())) << "the oldest have gone";
}

// The leader's links are cut while it has a command to order, again and again, and with whatever is
// under way then.
TEST(Serve, what_a_lost_connection_had_under_way_arrives_over_the_next) {
  Nodes nodes(3);
  Relay relay(nodes.directory().find(1)->address);
  nodes.put_in_front(1, relay.address());
  for (const PartyId id : nodes.ids()) nodes.start(id, correct_replica(nodes.directory()));
  relay.start();
  ClientOptions options = nodes.client_options(2);
  options.channel.device.reset();
  options.channel.transport = "tcp";
  options.timeout = kLong;
  const SigningKey key = key_of(kClient);
  Client client(nodes.directory(), key, options);
  std::uint64_t expected = 0;
  std::mt19937 random(3);
  for (int i = 0; i < 3; ++i) {
    const auto outputs = client.call(additions(5));
    EXPECT_EQ(CounterMachine::value_of(outputs.back()), expected += 5);
    relay.cut();
    const std::jthread mend([&, pause = std::chrono::milliseconds(random() % 400)] {
      std::this_thread::sleep_for(pause);
      relay.mend();
    });
    const auto later = client.call(additions(5));
    EXPECT_EQ(CounterMachine::value_of(later.back()), expected += 5);
  }
  EXPECT_FALSE(nodes.report(std::chrono::milliseconds(0)));
}

// Somebody on the way says again what one node has said to another. Nothing of it counts: what each
// has received of the other is counted, and both ask their kernels for the next record only.
TEST(Serve, what_is_said_again_on_the_way_counts_once) {
  Nodes nodes(3);
  Relay relay(nodes.directory().find(1)->address);
  nodes.put_in_front(1, relay.address());
  for (const PartyId id : nodes.ids()) nodes.start(id, correct_replica(nodes.directory()));
  relay.start();
  ClientOptions options = nodes.client_options(3);  // every node is needed
  options.channel.device.reset();
  options.channel.transport = "tcp";
  options.timeout = kLong;
  const SigningKey key = key_of(kClient);
  Client client(nodes.directory(), key, options);
  for (std::uint64_t i = 1; i <= 10; ++i) {
    client.submit(additions(1));
    relay.say_again();
    EXPECT_EQ(CounterMachine::value_of(client.receive().outputs.back()), i);
    relay.cut();
    relay.mend();
  }
  EXPECT_FALSE(nodes.report(std::chrono::milliseconds(0)));
}

// All connections are cut, of the nodes and of the client, with a request under way.
TEST(Serve, a_client_whose_connections_are_lost_connects_again) {
  Nodes nodes(3);
  auto seen =
      std::vector<Party>{{.id = kClient, .key = key_of(kClient).public_key(), .address = {}}};
  std::list<Relay> relays;
  for (const PartyId id : nodes.ids()) {
    seen.push_back(*nodes.directory().find(id));
    seen.back().address = relays.emplace_back(seen.back().address).address();
    nodes.put_in_front(id, seen.back().address);
  }
  for (const PartyId id : nodes.ids()) nodes.start(id, correct_replica(nodes.directory()));
  for (Relay& relay : relays) relay.start();
  const Directory directory(seen);
  const SigningKey key = key_of(kClient);
  ClientOptions options = nodes.client_options(3);  // every node is needed
  options.channel.device.reset();
  options.channel.transport = "tcp";
  options.retry_after = std::chrono::milliseconds(100);
  options.timeout = kLong;
  Client client(directory, key, options);
  std::uint64_t expected = 0;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(CounterMachine::value_of(client.call(additions(5)).back()), expected += 5);
    for (Relay& relay : relays) relay.cut();
    client.submit(additions(1));
    for (Relay& relay : relays) relay.mend();
    EXPECT_EQ(CounterMachine::value_of(client.receive().outputs.back()), expected += 1);
  }
}

TEST(Serve, a_newcomer_that_says_nothing_goes) {
  Nodes nodes(3);
  for (const PartyId id : nodes.ids()) nodes.start(id, correct_replica(nodes.directory()));
  leat::Channel silent = connected_to(nodes, 1);
  EXPECT_TRUE(turns_away(silent));
}

// Somebody stands where a node should, and says nothing: the node that connects there gives up, and
// tries again.
TEST(Serve, a_node_that_does_not_introduce_itself_is_tried_again) {
  Nodes nodes(3);
  leat::Options options = nodes.client_options(1).channel;
  options.device.reset();
  options.transport = "tcp";
  options.timeout = kLong;
  leat::Listener silent("leat://127.0.0.1:0", options);
  nodes.put_in_front(1, silent.address());
  nodes.start(2, correct_replica(nodes.directory()));
  leat::Channel channel = silent.accept();
  EXPECT_FALSE(channel.receive()) << "its end, in order, and nothing before a challenge";
  EXPECT_NO_THROW((void)silent.accept());
}

}  // namespace
}  // namespace leat::trusted
