// The configuration service of a chain, its nodes and a spare, each a process; and what it does
// when one of them lies, is silent or is killed.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <random>
#include <string>
#include <thread>

#include "leat/error.h"
#include "leat/trusted/configuration.h"
#include "trusted/configured.h"
#include "trusted/doubles.h"
#include "trusted/parts/configuration_messages.h"
#include "trusted/parts/courier.h"

namespace leat::trusted {
namespace {

using namespace detail;
using namespace std::chrono_literals;

// The patience that is left to nodes and service; of each test before it starts any.
std::chrono::milliseconds patience_left;

ConfigurationOptions service_options() {
  return {.service = kService,
          .pool = {2, 3, 4, 5, 6},
          .length = 3,
          .chain = {.first_session = kFirstSession,
                    .batch = 4,
                    .checkpoint_records = 4,
                    .timeout = 300ms},
          .patience = patience_left};
}

Nodes::Make correct(const Nodes& nodes) {
  return [&nodes](PartyId id, AttestationKernel&, const SigningKey& key,
                  FaultHook hook) -> std::unique_ptr<Participant> {
    const Directory& directory = nodes.directory();
    if (id == kService)
      return std::make_unique<ConfigurationService>(directory, key, make_store, kernels_of(id),
                                                    service_options(), ConfigurationService::Hook{},
                                                    std::move(hook));
    return std::make_unique<ChainMember>(id, directory, key, make_store, kernels_of(id),
                                         service_options());
  };
}

Nodes::Make deviant(const Nodes& nodes, Deviant::Change change) {
  return [&nodes, change](PartyId id, AttestationKernel& kernel, const SigningKey& key,
                          FaultHook hook) -> std::unique_ptr<Participant> {
    return std::make_unique<Deviant>(correct(nodes)(id, kernel, key, std::move(hook)), key, change);
  };
}

void start_service(Nodes& nodes, PartyId odd = 0, const Nodes::Make& make_odd = {},
                   std::chrono::milliseconds its_patience = 400ms) {
  patience_left = its_patience;
  for (const PartyId id : nodes.ids()) nodes.start(id, id == odd ? make_odd : correct(nodes));
}

ClientOptions client_options(const Nodes& nodes, PartyId self = kClient) {
  ClientOptions options = nodes.client_options(0, self);
  options.nodes.clear();
  options.service = kService;
  options.retry_after = 100ms;
  options.timeout = kLong;
  return options;
}

// A client, and its key.
struct User {
  explicit User(const Nodes& nodes, PartyId self = kClient)
      : key(key_of(self)), client(nodes.directory(), key, client_options(nodes, self)) {}

  void put(const std::string& name, const std::string& value) {
    EXPECT_EQ(KeyValueMachine::status_of(call(KeyValueMachine::put(name, value))),
              KeyValueMachine::Status::kOk);
  }
  std::optional<std::string> get(const std::string& name) {
    return KeyValueMachine::value_of(call(KeyValueMachine::get(name)));
  }
  Bytes call(const Bytes& command) { return client.call(std::vector<Bytes>{command}).front(); }

  const SigningKey key;
  Client client;
};

// The service's verdicts until one says that.
void expect_found_out(Nodes& nodes, PartyId accused, FaultKind kind) {
  while (const auto report = nodes.report(kLong)) {
    EXPECT_EQ(report->by, kService);
    if (report->fault.accused == accused && report->fault.kind == kind) return;
    EXPECT_EQ(report->fault.kind, FaultKind::kSilent) << report->fault.accused;
  }
  ADD_FAILURE() << "node " << accused << " is not found out";
}

// Whatever that node does, the client is served, and it is found out.
void expect_service_without(Nodes& nodes, PartyId accused, FaultKind kind) {
  User user(nodes);
  user.put("a", "1");
  EXPECT_GT(user.client.epoch(), 1U);
  EXPECT_EQ(user.get("a"), "1");
  expect_found_out(nodes, accused, kind);
}

TEST(Reconfiguration, a_killed_node_is_replaced_and_nothing_that_was_believed_is_lost) {
  Nodes nodes(kParties);
  start_service(nodes);
  User user(nodes);
  for (int i = 0; i < 30; ++i) user.put("key " + std::to_string(i), std::to_string(i));
  std::uint64_t epoch = user.client.epoch();
  // Head, middle and tail in turn; the first comes back as a spare, and is needed again.
  for (const PartyId victim : {2U, 3U, 4U}) {
    nodes.kill(victim);
    user.put("last victim", std::to_string(victim));
    EXPECT_GT(user.client.epoch(), epoch);
    epoch = user.client.epoch();
    if (victim == 2) nodes.start(2, correct(nodes));
    EXPECT_EQ(user.get("last victim"), std::to_string(victim));
  }
  for (int i = 0; i < 30; ++i) EXPECT_EQ(user.get("key " + std::to_string(i)), std::to_string(i));
  // Clients that come later learn of the chain that is there.
  User other(nodes, kOtherClient);
  EXPECT_EQ(other.client.epoch(), user.client.epoch());
  EXPECT_EQ(other.get("last victim"), "4");
}

TEST(Reconfiguration, case72_a_stalled_head_or_middle_is_replaced_after_a_clients_complaint) {
  for (const PartyId stalled : {2U, 3U}) {
    Nodes nodes(kParties);
    // Swallows all proofs of execution and answers, and does the rest.
    start_service(nodes, stalled,
                  deviant(nodes, [](const SigningKey&, PartyId, Bytes& message, Outbox&) {
                    return !type_of(message);
                  }));
    expect_service_without(nodes, stalled, FaultKind::kSilent);
  }
}

TEST(Reconfiguration, case72_messages_of_the_old_configuration_are_rejected_by_epoch) {
  Nodes nodes(kParties);
  // Node 3, the middle and then the head, sends its first record again before every other.
  start_service(nodes, 3,
                deviant(nodes,
                        [](const SigningKey&, PartyId to, Bytes& message, Outbox& outbox) {
                          static Bytes old;
                          if (to != 4 || type_of(message) != MessageType::kOrder) return true;
                          if (old.empty()) old = message;
                          outbox.send(to, old);
                          return true;
                        }),
                1s);  // or a busy machine has one configuration more
  User user(nodes);
  user.put("a", "1");
  nodes.kill(2);
  user.put("b", "2");
  EXPECT_EQ(user.client.epoch(), 2U);
  EXPECT_EQ(user.get("a"), "1");
  EXPECT_EQ(user.client.epoch(), 2U) << "the chain needed no other configuration";
  // The present head does not accept a request that was made to an earlier chain.
  RawClient raw(nodes, 3, kOtherClient);
  raw.send(raw.request(1000, {KeyValueMachine::put("a", "old")}, 1));
  raw.send(raw.request(2000, {KeyValueMachine::get("a")}, 2));
  const auto reply = raw.receive();
  const auto content = read_signed(reply, MessageType::kReply);
  ASSERT_TRUE(content);
  EXPECT_EQ(content->first, 2000U);
  EXPECT_EQ(content->epoch, 2U);
  EXPECT_EQ(KeyValueMachine::value_of(Items(content->items).take()), "1");
}

TEST(Reconfiguration, evidence_of_a_node_excludes_the_liar) {
  Nodes nodes(kParties);
  // The middle attests what nobody sent: whatever it sends to the tail has another output.
  const auto liar = [&nodes](PartyId id, AttestationKernel&, const SigningKey& key,
                             FaultHook) -> std::unique_ptr<Participant> {
    struct Wrong final : StateMachine {
      void execute(View command, Bytes& output) override {
        store.execute(command, output);
        output.push_back(std::byte{'!'});
      }
      void keep() noexcept override { store.keep(); }
      void undo() noexcept override { store.undo(); }
      void save(Bytes& state) const override { store.save(state); }
      bool load(View state) override { return store.load(state); }
      KeyValueMachine store;
    };
    return std::make_unique<ChainMember>(
        id, nodes.directory(), key, [] { return std::make_unique<Wrong>(); }, kernels_of(id),
        service_options());
  };
  start_service(nodes, 2, liar);
  expect_service_without(nodes, 2, FaultKind::kOutput);
}

TEST(Reconfiguration, case68_answers_that_differ_expose_who_lied_to_the_client) {
  Nodes nodes(kParties);
  start_service(nodes, 4,
                deviant(nodes, [](const SigningKey& key, PartyId, Bytes& message, Outbox&) {
                  if (const auto content = read_signed(message, MessageType::kReply)) {
                    auto lie = *content;
                    Bytes outputs;
                    Items::append(outputs, Bytes{std::byte{2}});
                    lie.items = *Items::read(outputs, 1);
                    message = write_signed(key, lie);
                  }
                  return true;
                }));
  expect_service_without(nodes, 4, FaultKind::kOutput);
}

// Whatever a node says that it has executed: no client loses what it believed.
TEST(Reconfiguration, a_forged_history_excludes_who_told_it) {
  Nodes nodes(kParties);
  start_service(nodes, 3, deviant(nodes, [](const SigningKey&, PartyId, Bytes& message, Outbox&) {
                  if (configuration_message(message) == ConfigurationMessage::kHistory)
                    message.back() ^= std::byte{1};
                  return true;
                }));
  User user(nodes);
  user.put("a", "1");
  nodes.kill(2);
  EXPECT_EQ(user.get("a"), "1");
  expect_found_out(nodes, 3, FaultKind::kLog);
}

// It joins, and at once says that it has started again.
TEST(Reconfiguration, a_node_that_ends_each_epoch_as_it_begins_is_blamed_and_goes) {
  Nodes nodes(kParties);
  start_service(nodes, 3,
                deviant(nodes, [](const SigningKey&, PartyId to, Bytes& message, Outbox& outbox) {
                  const auto epoch = read_epoch(message, ConfigurationMessage::kJoin);
                  if (epoch && *epoch > 0) {
                    outbox.send(to, message);
                    message = write_epoch(ConfigurationMessage::kJoin, 0);
                  }
                  return true;
                }));
  expect_service_without(nodes, 3, FaultKind::kSilent);
}

// A client alone, without any node's complicity, ends no epoch at once, and none for others.
TEST(Reconfiguration, complaints_of_nothing_change_nothing) {
  Nodes nodes(kParties);
  start_service(nodes, 0, {}, kLong);
  User user(nodes);
  user.put("a", "1");
  RawClient raw(nodes, kService, kOtherClient);
  const Bytes foreign = write_signed(
      user.key,
      {.type = MessageType::kRequest, .sender = kClient, .epoch = 1, .first = 1, .items = {}});
  raw.send(write_complaint(foreign, {}));
  raw.send(write_complaint(raw.request(5, {KeyValueMachine::get("a")}, 1), {foreign}));
  for (const auto type :
       {ConfigurationMessage::kSeal, ConfigurationMessage::kEnable, ConfigurationMessage::kJoin})
    raw.send(write_epoch(type, 1));
  raw.send(write_history(1, {}));
  Bytes evidence{static_cast<std::byte>(MessageType::kEvidence)};
  raw.send(evidence);
  RawClient to_node(nodes, 2, kOtherClient);
  to_node.send(write_epoch(ConfigurationMessage::kSeal, 1));
  to_node.send(
      write_configuration(sign_configuration(user.key, {2, {3, 4, 5}}, digest_of({})), {}));
  user.put("b", "1");
  EXPECT_EQ(user.client.epoch(), 1U);
  EXPECT_FALSE(nodes.report(0ms));
}

// Heard on the way, once: how node 2 introduced itself, and what it says when it has started again.
TEST(Reconfiguration, what_a_node_was_heard_saying_makes_nobody_that_node) {
  Nodes nodes(kParties);
  start_service(nodes, 0, {}, kLong);
  User user(nodes);
  user.put("a", "1");
  const SigningKey key = key_of(2);
  Introduction heard({nodes.directory(), key, 2, kSystemEpoch}, kService);
  Bytes challenge{static_cast<std::byte>(MessageType::kChallenge)};
  challenge.resize(33);
  ASSERT_TRUE(heard.take(challenge));
  leat::Options options = nodes.client_options(1).channel;
  options.timeout = kLong;
  auto liar =
      leat::Channel::connect("leat://" + nodes.directory().find(kService)->address, options);
  liar.send(*heard.answer());
  liar.send(write_resumption({.life = 99}));
  liar.send(write_epoch(ConfigurationMessage::kJoin, 0));
  EXPECT_TRUE(liar.receive());  // a challenge, whose answer nobody has heard
  try {
    EXPECT_FALSE(liar.receive());
  } catch (const Error& error) {  // with words of the liar unread
    EXPECT_EQ(error.code(), ErrorCode::kPeerDied);
  }
  user.put("b", "1");
  EXPECT_EQ(user.client.epoch(), 1U);
  EXPECT_FALSE(nodes.report(0ms));
}

// Whichever node is killed, when ever: the client's next requests are answered, and rightly.
TEST(Reconfiguration, any_node_killed_at_any_point_is_replaced) {
  std::mt19937 random(7);
  for (std::size_t round = 0; round < kills(3); ++round) {
    Nodes nodes(kParties);
    start_service(nodes);
    User user(nodes);
    user.put("key", "0");
    const PartyId victim = 2 + static_cast<PartyId>(random() % (kParties - 1));
    std::jthread killer = nodes.kill_soon(victim, random);
    const auto until = std::chrono::steady_clock::now() + 40ms;
    for (int i = 1; i < 3 || std::chrono::steady_clock::now() < until; ++i) {
      const auto outputs = user.client.call(std::vector<Bytes>{
          KeyValueMachine::get("key"), KeyValueMachine::put("key", std::to_string(i))});
      EXPECT_EQ(KeyValueMachine::value_of(outputs[0]), std::to_string(i - 1)) << "round " << round;
    }
    killer.join();
    while (const auto report = nodes.report(0ms))
      EXPECT_EQ(report->fault.kind, FaultKind::kSilent) << "round " << round;
  }
}

}  // namespace
}  // namespace leat::trusted
