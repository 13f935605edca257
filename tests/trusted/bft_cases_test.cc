// Cases 50 to 62 of the test plan: replicas as processes, liars among them as test doubles that
// speak the wire protocol with a kernel of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "leat/channel.h"
#include "leat/error.h"
#include "trusted/doubles.h"
#include "trusted/nodes.h"
#include "trusted/parts/messages.h"

namespace leat::trusted {
namespace {

using namespace detail;
using namespace std::chrono_literals;

Nodes::Make correct(const Directory& directory, std::size_t nodes, unsigned batch = 1) {
  return [&directory, nodes, batch](PartyId, AttestationKernel& kernel, const SigningKey& key,
                                    FaultHook hook) {
    auto options = bft_options(nodes, batch);
    options.leader_timeout = 300ms;
    return std::make_unique<BftReplica>(kernel, directory, key, make_counter, options,
                                        std::move(hook));
  };
}

// Three or five nodes, one of them (if not 0) made by `odd`.
void start_replicas(Nodes& nodes, std::size_t count, PartyId liar_id = 0,
                    const Nodes::Make& odd = {}, unsigned batch = 1) {
  for (PartyId id = 1; id <= count; ++id)
    nodes.start(id, id == liar_id ? odd : correct(nodes.directory(), count, batch));
}

std::uint64_t value(const std::vector<Bytes>& outputs) {
  return outputs.empty() ? 0 : CounterMachine::value_of(outputs.back()).value_or(0);
}

void expect_no_answer(const Nodes& nodes) { nodes.expect_no_answer(2, additions(1)); }

// The next report is that: of a correct node, and with evidence that convinces a third party.
void expect_exposed(Nodes& nodes, PartyId accused, FaultKind kind, std::size_t count = 3,
                    unsigned batch = 1) {
  const auto report = nodes.report(kLong);
  ASSERT_TRUE(report) << "nobody is exposed";
  EXPECT_NE(report->by, accused);
  EXPECT_EQ(report->fault.accused, accused);
  EXPECT_EQ(report->fault.kind, kind) << to_string(report->fault.kind);
  const auto third = kernel_of(static_cast<PartyId>(count + 10), count);
  const auto verdict = judge(*third, nodes.directory(), make_counter, bft_options(count, batch),
                             report->fault.evidence);
  ASSERT_TRUE(verdict) << "its evidence convinces nobody";
  EXPECT_EQ(verdict->accused, accused);
  EXPECT_EQ(verdict->kind, kind);
}

TEST(BftProcesses, clients_count_together) {
  for (const auto& [count, batch] : {std::pair<std::size_t, unsigned>{3, 8}, {5, 1}}) {
    Nodes nodes(count);
    start_replicas(nodes, count, 0, {}, batch);
    Client one = nodes.connect(count / 2 + 1);
    Client other = nodes.connect(count / 2 + 1, kOtherClient);
    for (int i = 0; i < 3; ++i) one.submit(additions(100));
    std::uint64_t last = value(other.call(additions(50)));
    for (int i = 0; i < 3; ++i) last = std::max(last, value(one.receive().outputs));
    EXPECT_EQ(last, 350U);
    EXPECT_FALSE(nodes.report(0ms));
  }
}

TEST(BftProcesses, case50_a_leader_with_a_wrong_value_is_exposed_and_nothing_executed) {
  Nodes nodes(3);
  start_replicas(nodes, 3, 1, liar([](Scripted& self, View request, Outbox& outbox) {
                   const Bytes outputs = Scripted::outputs_from(2);  // 0 + 1
                   self.order_all({{request}, *Items::read(outputs, 1), {}}, outbox);
                 }));
  expect_no_answer(nodes);
  expect_exposed(nodes, 1, FaultKind::kOutput);
}

// The leader sends the two followers different requests, under counters 0 and 1 of its one stream.
// All replicas execute the request with counter 0, none the one with counter 1.
TEST(BftProcesses, case51_of_different_requests_for_one_round_at_most_one_is_executed) {
  Nodes nodes(3);
  start_replicas(nodes, 3, 1, liar([](Scripted& self, View request, Outbox& outbox) {
                   static Bytes first;
                   if (first.empty()) {
                     first.assign(request.begin(), request.end());
                     return;
                   }
                   const Bytes outputs = Scripted::outputs_from(1);
                   self.order(3, {{View(first)}, *Items::read(outputs, 1), {}}, outbox);
                   self.order(2, {{request}, *Items::read(outputs, 1), {}}, outbox);
                 }));
  const SigningKey one_key = key_of(kClient), other_key = key_of(kOtherClient);
  ClientOptions options = nodes.client_options(2);
  options.retry_after = kLong;  // the leader alone is asked, once
  Client one(nodes.directory(), one_key, options);
  one.submit(additions(1));
  options.self = kOtherClient;
  options.timeout = kShort;
  Client other(nodes.directory(), other_key, options);
  EXPECT_THROW(other.call(additions(1)), Error);
  EXPECT_EQ(value(one.receive().outputs), 1U);
}

TEST(BftProcesses, case52_one_correct_receiver_is_enough_for_all_to_execute) {
  Nodes nodes(3);
  start_replicas(nodes, 3, 1, liar([](Scripted& self, View request, Outbox& outbox) {
                   const Bytes outputs = Scripted::outputs_from(1);
                   if (self.calls == 0)
                     self.order(3, {{request}, *Items::read(outputs, 1), {}}, outbox);
                 }));
  Client client = nodes.connect(2);
  EXPECT_EQ(value(client.call(additions(1))), 1U);
  EXPECT_FALSE(nodes.report(0ms));
}

TEST(BftProcesses, case52_a_silent_leader_is_a_time_out_that_says_so_and_calls_for_a_view_change) {
  Nodes nodes(3);
  start_replicas(nodes, 3, 1, liar({}));
  const SigningKey key = key_of(kClient);
  ClientOptions options = nodes.client_options(2);
  options.timeout = kShort;
  options.retry_after = 200ms;
  Client client(nodes.directory(), key, options);
  try {
    client.call(additions(1));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_NE(std::string(error.what()).find("no word from node 1 2 3 (1 leads)"),
              std::string::npos)
        << error.what();
  }
  const auto report = nodes.report(kLong);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->fault.accused, 1U);
  EXPECT_EQ(report->fault.kind, FaultKind::kSilent);
}

TEST(BftProcesses, case53_a_request_that_comes_again_gets_the_same_reply_and_is_executed_once) {
  Nodes nodes(3);
  start_replicas(nodes, 3);
  RawClient leader(nodes, 1), follower(nodes, 2);
  const Bytes request = leader.request(7, additions(3));
  leader.send(request);
  const Bytes reply = leader.receive();
  const Bytes other_reply = follower.receive();
  leader.send(request);
  follower.send(request);
  EXPECT_EQ(leader.receive(), reply);
  EXPECT_EQ(follower.receive(), other_reply);
  leader.send(leader.request(10, additions(1)));
  const Bytes next = leader.receive();
  const auto content = read_signed(next, MessageType::kReply);
  ASSERT_TRUE(content);
  Items items = content->items;
  EXPECT_EQ(CounterMachine::value_of(items.take()), 4U);
}

// A small message would make nodes send somebody else a large one, as often as its sender likes.
TEST(BftProcesses, case53_a_reply_is_sent_again_to_the_client_that_asks_and_to_no_other) {
  Nodes nodes(3);
  start_replicas(nodes, 3);
  RawClient client(nodes, 1), other(nodes, 1, kOtherClient);
  const Bytes request = client.request(7, additions(3));
  client.send(request);
  client.receive();
  other.send(request);
  other.send(other.request(1, additions(1)));
  other.receive();  // so the node has had both
  client.send(client.request(10, additions(1)));
  const Bytes next = client.receive();
  const auto content = read_signed(next, MessageType::kReply);
  ASSERT_TRUE(content);
  EXPECT_EQ(content->first, 10U);
}

TEST(BftProcesses, case53_a_leader_that_orders_a_request_again_is_exposed) {
  Nodes nodes(3);
  start_replicas(nodes, 3, 1, liar([](Scripted& self, View request, Outbox& outbox) {
                   for (std::uint64_t value = 1; value < 3; ++value) {
                     const Bytes outputs = Scripted::outputs_from(value);
                     self.order_all({{request}, *Items::read(outputs, 1), {}}, outbox);
                   }
                 }));
  Client client = nodes.connect(2);
  EXPECT_EQ(value(client.call(additions(1))), 1U);
  expect_exposed(nodes, 1, FaultKind::kRequest);
}

TEST(BftProcesses, case54_a_leader_that_makes_up_a_request_is_exposed) {
  Nodes nodes(3);
  start_replicas(nodes, 3, 1, liar([](Scripted& self, View, Outbox& outbox) {
                   Bytes body;
                   Items::append(body, CounterMachine::add(1'000'000));
                   const Bytes forged = write_signed(self.key(), {.type = MessageType::kRequest,
                                                                  .sender = kOtherClient,
                                                                  .epoch = kSystemEpoch,
                                                                  .first = 1,
                                                                  .items = *Items::read(body, 1)});
                   const Bytes outputs = Scripted::outputs_from(1'000'000);
                   self.order_all({{View(forged)}, *Items::read(outputs, 1), {}}, outbox);
                 }));
  expect_no_answer(nodes);
  expect_exposed(nodes, 1, FaultKind::kRequest);
}

TEST(BftProcesses, case55_a_follower_with_a_wrong_value_is_exposed_and_the_others_go_on) {
  Nodes nodes(3);
  start_replicas(nodes, 3, 3, liar({}, [](Scripted& self, View order, Outbox& outbox) {
                   const Bytes outputs = Scripted::outputs_from(999);
                   const Bytes own = self.record(write_step({{}, *Items::read(outputs, 1), {}}));
                   for (const PartyId to : {1U, 2U})
                     outbox.send(to, write_blobs(MessageType::kExecuted, {own, order}));
                   self.answer({.sender = kClient, .first = 1}, *Items::read(outputs, 1), outbox);
                 }));
  Client client = nodes.connect(2);
  for (std::uint64_t i = 1; i < 6; ++i) EXPECT_EQ(value(client.call(additions(1))), i);
  expect_exposed(nodes, 3, FaultKind::kOutput);
}

TEST(BftProcesses, case55_a_follower_that_acknowledges_twice_is_exposed_by_the_next_record) {
  Nodes nodes(3);
  start_replicas(nodes, 3, 3, liar({}, [](Scripted& self, View order, Outbox& outbox) {
                   const auto step = read_step(payload_of(order));
                   for (int i = 0; i < 3; ++i) {
                     const Bytes own = self.record(write_step({{}, step->outputs, {}}));
                     for (const PartyId to : {1U, 2U})
                       outbox.send(to, write_blobs(MessageType::kExecuted, {own, order}));
                   }
                 }));
  Client client = nodes.connect(2);
  for (std::uint64_t i = 1; i < 6; ++i) EXPECT_EQ(value(client.call(additions(1))), i);
  const auto report = nodes.report(kLong);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->fault.accused, 3U);
  EXPECT_EQ(report->fault.kind, FaultKind::kOutput);  // of the record that its proof came ahead of
}

TEST(BftProcesses, case56_f_replies_are_no_answer) {
  Nodes nodes(3);
  // The leader orders, and keeps quiet to clients; one follower does nothing.
  start_replicas(nodes, 3, 1, liar([](Scripted& self, View request, Outbox& outbox) {
                   const Bytes outputs = Scripted::outputs_from(1);
                   if (self.calls == 0)
                     self.order_all({{request}, *Items::read(outputs, 1), {}}, outbox);
                 }));
  nodes.kill(3);
  nodes.start(3, liar({}));
  expect_no_answer(nodes);
}

// Which lies to the client alone: `times` replies to each request, of the value 1, signed by
// itself.
Nodes::Make replies_only(int times) {
  return liar([times](Scripted& self, View request, Outbox& outbox) {
    const auto content = read_signed(request, MessageType::kRequest);
    const Bytes outputs = Scripted::outputs_from(1);
    for (int i = 0; i < times; ++i) self.answer(*content, *Items::read(outputs, 1), outbox);
  });
}

TEST(BftProcesses, case57_replies_of_one_replica_count_once) {
  Nodes nodes(3);
  nodes.start(1, replies_only(5));
  nodes.start(2, liar({}));
  nodes.start(3, liar({}));
  expect_no_answer(nodes);
}

TEST(BftProcesses, case58_a_reply_of_an_earlier_round_is_no_answer) {
  Nodes nodes(3);
  // Answers the first request rightly and all later ones with that answer; so do two of three.
  const auto stale = liar([](Scripted& self, View request, Outbox& outbox) {
    static const Bytes first(request.begin(), request.end());
    const Bytes outputs = Scripted::outputs_from(1);
    self.answer(*read_signed(first, MessageType::kRequest), *Items::read(outputs, 1), outbox);
  });
  nodes.start(1, stale);
  nodes.start(2, stale);
  nodes.start(3, liar({}));
  EXPECT_EQ(value(nodes.connect(2).call(additions(1))), 1U);
  expect_no_answer(nodes);
}

TEST(BftProcesses, case59_a_batch_with_one_bad_element_is_refused_whole) {
  Nodes nodes(3);
  start_replicas(nodes, 3, 1, liar([](Scripted& self, View request, Outbox& outbox) {
                   static Bytes good;
                   if (good.empty()) {
                     good.assign(request.begin(), request.end());
                     return;
                   }
                   Bytes bad(request.begin(), request.end());
                   bad[40] ^= std::byte{1};
                   const Bytes outputs = Scripted::outputs_from(1, 2);
                   self.order_all({{View(good), View(bad)}, *Items::read(outputs, 2), {}}, outbox);
                 }),
                 8);
  expect_no_answer(nodes);  // sends its request several times
  expect_exposed(nodes, 1, FaultKind::kRequest, 3, 8);
}

TEST(BftProcesses, case60_the_last_batch_of_a_request_may_be_short) {
  Nodes nodes(3);
  start_replicas(nodes, 3, 0, {}, 8);
  Client client = nodes.connect(3);  // all three say the same
  EXPECT_EQ(value(client.call(additions(13))), 13U);
  EXPECT_EQ(value(client.call(additions(1))), 14U);
}

TEST(BftProcesses, case61_what_a_hostile_client_sends_changes_nothing) {
  Nodes nodes(3);
  start_replicas(nodes, 3);
  RawClient raw(nodes, 1);
  std::vector<Bytes> bad{{}, Bytes(1), Bytes(5000, std::byte{2}), Bytes(kMaxRequestBytes + 100)};
  const Bytes good = raw.request(1, additions(1));
  for (const std::size_t at : {std::size_t{2}, std::size_t{4}, std::size_t{12}, std::size_t{20},
                               std::size_t{29}, good.size() - 1}) {
    bad.push_back(good);
    bad.back()[at] ^= std::byte{1};
  }
  bad.push_back(raw.request(1, additions(1), kSystemEpoch + 1));
  bad.emplace_back(good.begin(), good.end() - 1);
  for (const Bytes& message : bad) raw.send(message);
  // In another client's name, and a node's.
  for (const PartyId name : {kOtherClient, PartyId{2}}) {
    const RawClient impostor(nodes, 1, name, kClient);
    EXPECT_FALSE(impostor.let_in());
  }
  raw.send(good);
  raw.send(good);
  const Bytes bytes = raw.receive();
  const auto reply = read_signed(bytes, MessageType::kReply);
  ASSERT_TRUE(reply);
  Client client = nodes.connect(2, kOtherClient);
  EXPECT_EQ(value(client.call(additions(1))), 2U) << "one of each client was executed";
  EXPECT_FALSE(nodes.report(0ms));
}

// The bound is tight: with more liars than f a client believes what they say.
TEST(BftProcesses, case62_f_plus_one_liars_do_deceive) {
  Nodes nodes(3);
  nodes.start(1, replies_only(1));
  nodes.start(2, liar({}, {}));
  nodes.start(3, replies_only(1));
  const SigningKey key = key_of(kClient);
  ClientOptions options = nodes.client_options(2);
  options.retry_after = 100ms;  // so that 3 is asked too
  Client client(nodes.directory(), key, options);
  EXPECT_EQ(value(client.call(additions(1, 500))), 1U) << "the client did not believe the liars";
}

}  // namespace
}  // namespace leat::trusted
