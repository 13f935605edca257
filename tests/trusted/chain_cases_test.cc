// Cases 63 to 72 of the test plan: the nodes of a chain as processes, a liar among them.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "leat/error.h"
#include "leat/trusted/chain.h"
#include "trusted/doubles.h"

namespace leat::trusted {
namespace {

using namespace detail;
using namespace std::chrono_literals;

constexpr std::size_t kNodes = 3;

ChainOptions chain_options() {
  return {.nodes = {1, 2, 3},
          .first_session = kFirstSession,
          .batch = 4,
          .checkpoint_records = 4,
          .timeout = 300ms};
}

// Starts nodes 1, 2 and 3; `odd`, if not 0, is made by `make_odd`.
void start_chain(Nodes& nodes, PartyId odd = 0, const Nodes::Make& make_odd = {}) {
  for (PartyId id = 1; id <= kNodes; ++id)
    nodes.start(
        id,
        id == odd ? make_odd
                  : [&](PartyId, AttestationKernel& kernel, const SigningKey& key,
                        FaultHook hook) -> std::unique_ptr<Participant> {
          return std::make_unique<ChainNode>(kernel, nodes.directory(), key, make_store,
                                             chain_options(), std::move(hook));
        });
}

// The output of one put() of a new key.
Bytes put_output() { return {std::byte{1}}; }
Items items_of(const Bytes& bytes, std::size_t count = 1) { return *Items::read(bytes, count); }
Bytes one_item(View output) {
  Bytes bytes;
  Items::append(bytes, output);
  return bytes;
}
void pass(PartyId to, std::initializer_list<View> proofs, Outbox& outbox) {
  Bytes list;
  for (const View proof : proofs) append_blob(list, proof);
  outbox.send(to, write_order(list));
}

void expect_nothing_stored(const Nodes& nodes) {
  nodes.expect_no_answer(kNodes, std::vector<Bytes>{KeyValueMachine::put("a", "1")});
}

void expect_chain_exposes(Nodes& nodes, PartyId accused, FaultKind kind) {
  const auto report = nodes.report(kLong);
  ASSERT_TRUE(report) << "nobody is exposed";
  EXPECT_EQ(report->fault.accused, accused);
  EXPECT_EQ(report->fault.kind, kind) << to_string(report->fault.kind);
  const auto third = kernel_of(9, kNodes);
  const auto verdict =
      judge(*third, nodes.directory(), make_store, chain_options(), report->fault.evidence);
  ASSERT_TRUE(verdict) << "its evidence convinces nobody";
  EXPECT_EQ(verdict->accused, accused);
  EXPECT_EQ(verdict->kind, kind);
}

// Over several checkpoints; 13 commands are batches of 4, 4, 4 and 1.
TEST(ChainProcesses, clients_put_get_and_erase) {
  Nodes nodes(kNodes);
  start_chain(nodes);
  Client client = nodes.connect(kNodes);
  Client other = nodes.connect(kNodes, kOtherClient);
  for (int round = 0; round < 10; ++round) {
    std::vector<Bytes> commands;
    for (int i = 0; i < 13; ++i)
      commands.push_back(
          KeyValueMachine::put("key " + std::to_string(i), "value " + std::to_string(round)));
    client.submit(commands);
  }
  for (int round = 0; round < 10; ++round) EXPECT_EQ(client.receive().outputs.size(), 13U);
  const auto outputs = other.call(std::vector<Bytes>{
      KeyValueMachine::get("key 12"), KeyValueMachine::erase("key 12"),
      KeyValueMachine::get("key 12"), KeyValueMachine::erase("key 12"), Bytes(2)});
  EXPECT_EQ(KeyValueMachine::value_of(outputs[0]), "value 9");
  EXPECT_EQ(KeyValueMachine::status_of(outputs[1]), KeyValueMachine::Status::kOk);
  EXPECT_EQ(KeyValueMachine::status_of(outputs[2]), KeyValueMachine::Status::kNotFound);
  EXPECT_EQ(KeyValueMachine::status_of(outputs[3]), KeyValueMachine::Status::kNotFound);
  EXPECT_EQ(KeyValueMachine::status_of(outputs[4]), KeyValueMachine::Status::kNoCommand);
  EXPECT_FALSE(nodes.report(0ms));
}

TEST(ChainProcesses, case63_a_step_after_a_gap_is_not_executed) {
  Nodes nodes(kNodes);
  start_chain(nodes, 1, liar([](Scripted& self, View request, Outbox& outbox) {
                const Bytes outputs = one_item(put_output());
                const Bytes step = write_step({{request}, items_of(outputs), {}});
                if (self.calls == 0) (void)self.record(step);  // number 0, which nobody gets
                pass(2, {self.record(step)}, outbox);
              }));
  expect_nothing_stored(nodes);
}

TEST(ChainProcesses, case64_a_head_with_a_wrong_output_is_exposed) {
  Nodes nodes(kNodes);
  start_chain(nodes, 1, liar([](Scripted& self, View request, Outbox& outbox) {
                const Bytes outputs = one_item(Bytes{std::byte{2}});
                pass(2, {self.record(write_step({{request}, items_of(outputs), {}}))}, outbox);
              }));
  expect_nothing_stored(nodes);
  expect_chain_exposes(nodes, 1, FaultKind::kOutput);
}

TEST(ChainProcesses, case65_a_middle_node_with_a_wrong_output_is_exposed_by_the_tail) {
  Nodes nodes(kNodes);
  start_chain(nodes, 2, liar({}, [](Scripted& self, View message, Outbox& outbox) {
                const auto proofs = read_blobs(message, 1);
                const Bytes outputs = one_item(Bytes{std::byte{2}});
                const Bytes own = self.record(write_step({{}, items_of(outputs), {}}));
                pass(3, {proofs->front(), own}, outbox);
              }));
  expect_nothing_stored(nodes);
  expect_chain_exposes(nodes, 2, FaultKind::kOutput);
}

// The middle node tries everything with the proofs of a step, and then does what is right: the tail
// has refused all of it and changed nothing.
TEST(ChainProcesses, case65_66_67_70_altered_dropped_swapped_and_replayed_proofs_are_refused) {
  Nodes nodes(kNodes);
  start_chain(nodes, 2,
              liar(
                  [](Scripted& self, View request, Outbox& outbox) {
                    const auto content = read_signed(request, MessageType::kRequest);
                    const Bytes outputs = one_item(put_output());
                    self.answer(*content, items_of(outputs), outbox);
                  },
                  [](Scripted& self, View message, Outbox& outbox) {
                    static Bytes old_head, old_own;
                    const auto proofs = read_blobs(message, 1);
                    const View head = proofs->front();
                    const Bytes outputs = one_item(put_output());
                    const Bytes own = self.record(write_step({{}, items_of(outputs), {}}));
                    Bytes request(head.begin(), head.end());
                    request[kHeaderBytes + 50] ^= std::byte{1};
                    Bytes stranger = own;
                    stranger[8] = std::byte{77};  // its session
                    pass(3, {request, own}, outbox);
                    pass(3, {head}, outbox);
                    pass(3, {own}, outbox);
                    pass(3, {own, head}, outbox);
                    pass(3, {head, own, own}, outbox);
                    pass(3, {own, own}, outbox);
                    pass(3, {head, stranger}, outbox);
                    if (!old_head.empty()) {
                      pass(3, {old_head, own}, outbox);
                      pass(3, {head, old_own}, outbox);
                    }
                    Bytes overflow(head.size() + 4, std::byte{0xff});
                    outbox.send(3, write_order(overflow));
                    pass(3, {head, own}, outbox);
                    old_head.assign(head.begin(), head.end());
                    old_own = own;
                  }));
  // The double answers the client when it is asked itself: on a retry.
  const SigningKey key = key_of(kClient);
  ClientOptions options = nodes.client_options(kNodes);
  options.retry_after = 50ms;
  Client client(nodes.directory(), key, options);
  for (const char* name : {"a", "b"})
    EXPECT_EQ(client.call(std::vector<Bytes>{KeyValueMachine::put(name, "1")}).front(),
              put_output());
  EXPECT_FALSE(nodes.report(0ms));
}

TEST(ChainProcesses, case68_a_tail_that_lies_to_the_client_gets_no_answer_believed) {
  Nodes nodes(kNodes);
  const auto lie = [](Scripted& self, View request, Outbox& outbox) {
    const auto content = read_signed(request, MessageType::kRequest);
    const Bytes outputs = one_item(put_output());  // of a get: found, and empty
    if (content) self.answer(*content, items_of(outputs), outbox);
  };
  start_chain(nodes, 3, liar(lie));
  nodes.expect_no_answer(kNodes, std::vector<Bytes>{KeyValueMachine::get("never put")});
}

TEST(ChainProcesses, case69_acknowledgements_that_are_not_the_tails_are_ignored) {
  Nodes nodes(kNodes);
  start_chain(nodes);
  RawClient raw(nodes, 1);
  for (int i = 0; i < 10; ++i) {
    Bytes list;
    for (int k = 0; k < 3; ++k) append_blob(list, Bytes(kRecordOverheadBytes + 20));
    raw.send(write_blobs(MessageType::kExecuted, {list}));
  }
  Client client = nodes.connect(kNodes, kOtherClient);
  EXPECT_EQ(client.call(std::vector<Bytes>{KeyValueMachine::put("a", "1")}).front(), put_output());
  EXPECT_FALSE(nodes.report(0ms));
}

TEST(ChainProcesses, case71_72_without_the_answer_of_all_there_is_none_and_the_silence_is_told) {
  Nodes nodes(kNodes);
  start_chain(nodes, 2, liar({}));  // swallows everything
  expect_nothing_stored(nodes);
  const auto report = nodes.report(kLong);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->by, 3U);
  EXPECT_EQ(report->fault.accused, 2U);
  EXPECT_EQ(report->fault.kind, FaultKind::kSilent);
}

TEST(KeyValueMachine, undone_commands_leave_nothing_and_states_come_back) {
  KeyValueMachine store;
  Bytes output;
  store.execute(KeyValueMachine::put("kept", "1"), output);
  store.execute(KeyValueMachine::put("gone", "2"), output);
  store.keep();
  Bytes before;
  store.save(before);
  store.execute(KeyValueMachine::put("kept", "other"), output);
  store.execute(KeyValueMachine::erase("gone"), output);
  store.execute(KeyValueMachine::put("gone", "3"), output);
  store.execute(KeyValueMachine::put("new", "4"), output);
  store.undo();
  Bytes after;
  store.save(after);
  EXPECT_EQ(after, before);
  KeyValueMachine copy;
  ASSERT_TRUE(copy.load(before));
  output.clear();
  copy.execute(KeyValueMachine::get("gone"), output);
  EXPECT_EQ(KeyValueMachine::value_of(output), "2");
  before.pop_back();
  EXPECT_FALSE(copy.load(before));
}

}  // namespace
}  // namespace leat::trusted
