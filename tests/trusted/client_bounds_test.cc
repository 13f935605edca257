// What nodes keep of each client is bounded, and a client whose answer is not kept hears so; and
// the numbers of its requests, which may be those of an earlier life.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "leat/error.h"
#include "leat/trusted/chain.h"
#include "support/errors.h"
#include "trusted/doubles.h"
#include "trusted/parts/quorum.h"
#include "trusted/parts/replies.h"
#include "trusted/peer_parties.h"

namespace leat::trusted {
namespace {

using namespace std::chrono_literals;
using detail::Done;
using detail::kMaxKeptAnswerBytes;
using detail::Ledger;
using detail::Quorum;
using detail::read_signed;
using detail::Replies;

struct Sent final : Outbox {
  void send(PartyId, View message) override { last.assign(message.begin(), message.end()); }
  Bytes last;
};

const Bytes& submit_one(Quorum& client) { return client.submit(additions(1)); }

// One answer of each request, of about 1 MiB.
TEST(ReplyBounds, the_last_answers_of_a_client_are_kept_and_of_others_it_hears) {
  const SigningKey node_key = key_of(1), key = key_of(kClient);
  const Directory directory(parties(1));
  Quorum client(directory, key,
                {.self = kClient, .epoch = kSystemEpoch, .nodes = {1}, .quorum = 1, .window = 16},
                1);
  Replies replies(node_key, 1, kSystemEpoch);
  Sent sent;
  std::vector<Bytes> requests;
  std::size_t bytes = 0;
  for (int i = 0; i < 16; ++i) {
    requests.push_back(submit_one(client));
    const auto content = *read_signed(requests.back(), MessageType::kRequest);
    Done done{.client = kClient,
              .first = content.first,
              .count = 64,
              .request = detail::digest_of_request(content),
              .outputs = {}};
    for (std::size_t k = 0; k < done.count; ++k) Items::append(done.outputs, Bytes(kMaxItemBytes));
    replies.send(done, sent);
    bytes = sent.last.size();
  }
  std::size_t again = 0;
  for (const Bytes& request : requests) {
    replies.send_again(*read_signed(request, MessageType::kRequest), nullptr, sent);
    if (detail::type_of(sent.last) == MessageType::kReply) ++again;
    const bool should = &request >= &requests[16 - kMaxKeptAnswerBytes / bytes];
    EXPECT_EQ(detail::type_of(sent.last), should ? MessageType::kReply : MessageType::kRefused);
  }
  EXPECT_LE(again * bytes, kMaxKeptAnswerBytes);
  EXPECT_GE(again, 3U);
  // The oldest is one of those that are gone.
  replies.send_again(*read_signed(requests.front(), MessageType::kRequest), nullptr, sent);
  EXPECT_TRUE(client.receive(sent.last));
  EXPECT_THAT(leat::detail::error_of(ErrorCode::kUnavailable, [&] { client.check_refused(); }),
              testing::HasSubstr("too few nodes still have an answer"));
  EXPECT_EQ(client.under_way(), 15U) << "given up";
}

TEST(ReplyBounds, an_answer_that_is_held_is_neither_sent_nor_denied) {
  const SigningKey node_key = key_of(1), key = key_of(kClient);
  const Directory directory(parties(1));
  Quorum client(directory, key, {.self = kClient, .epoch = kSystemEpoch, .nodes = {1}, .quorum = 1},
                1);
  Replies replies(node_key, 1, kSystemEpoch);
  const Bytes request = submit_one(client);
  const auto content = *read_signed(request, MessageType::kRequest);
  Done done{.client = kClient,
            .first = content.first,
            .count = 1,
            .request = detail::digest_of_request(content),
            .outputs = {}};
  Items::append(done.outputs, CounterMachine::add(1));
  replies.hold(5, done);
  Sent sent;
  replies.send_again(content, &done, sent);
  replies.send_before(5, sent);
  EXPECT_TRUE(sent.last.empty());
  replies.send_before(6, sent);
  EXPECT_TRUE(client.receive(sent.last));
  EXPECT_TRUE(client.take());
}

class ClientOfThree : public testing::Test {
 protected:
  // What a node says of the client's oldest request.
  Bytes refusal(PartyId node, std::uint64_t number) const {
    Sent sent;
    const SigningKey key = key_of(node);
    Replies(key, node, kSystemEpoch).refuse(content(), number, sent);
    return sent.last;
  }
  Bytes reply(PartyId node, std::uint64_t value, std::uint64_t digest_of_first = 1000) const {
    Sent sent;
    const SigningKey key = key_of(node);
    auto about = content();
    about.first = digest_of_first;
    Done done{.client = kClient,
              .first = 1000,
              .count = 1,
              .request = detail::digest_of_request(about),
              .outputs = {}};
    Items::append(done.outputs, CounterMachine::add(value));
    Replies(key, node, kSystemEpoch).send(done, sent);
    return sent.last;
  }
  detail::Signed content() const { return *read_signed(request_, MessageType::kRequest); }

  const SigningKey key_ = key_of(kClient);
  const Directory directory_{parties(3)};
  Quorum client_{directory_,
                 key_,
                 {.self = kClient, .epoch = kSystemEpoch, .nodes = {1, 2, 3}, .quorum = 2},
                 1000};
  const Bytes request_ = client_.submit(additions(1));
};

// One node may lie: neither its word nor its silence makes the client give up.
TEST_F(ClientOfThree, gives_a_request_up_only_when_no_answer_can_be_believed_any_more) {
  EXPECT_TRUE(client_.receive(refusal(1, 0)));
  client_.check_refused();
  EXPECT_TRUE(client_.receive(reply(2, 1)));
  client_.check_refused();
  EXPECT_THAT(client_.describe(), testing::HasSubstr("node 1 keeps no answer"));
  EXPECT_TRUE(client_.receive(reply(3, 1)));
  client_.check_refused();
  EXPECT_TRUE(client_.take());
}

TEST_F(ClientOfThree, gives_up_when_two_keep_no_answer) {
  EXPECT_TRUE(client_.receive(refusal(1, 0)));
  EXPECT_TRUE(client_.receive(refusal(2, 0)));
  EXPECT_THROW(client_.check_refused(), Error);
}

TEST_F(ClientOfThree, believes_no_answer_to_another_request_of_that_number) {
  EXPECT_FALSE(client_.receive(reply(1, 1, 999)));
  EXPECT_FALSE(client_.receive(reply(2, 1, 999)));
  EXPECT_FALSE(client_.take());
  EXPECT_TRUE(client_.receive(reply(1, 1)));
  EXPECT_TRUE(client_.receive(reply(2, 1)));
  EXPECT_TRUE(client_.take());
}

TEST_F(ClientOfThree, numbers_go_on_behind_what_a_quorum_has_had) {
  Quorum client(directory_, key_,
                {.self = kClient, .epoch = kSystemEpoch, .nodes = {1, 2, 3}, .quorum = 2}, 1000);
  EXPECT_TRUE(client.should_learn_more());
  client.learn(1, 500);
  client.learn(4, 1'000'000);  // no node
  EXPECT_TRUE(client.should_learn_more()) << "a liar says what it likes";
  client.learn(2, 5000);
  EXPECT_TRUE(client.should_learn_more()) << "the clock was set back, or a liar says so";
  client.learn(3, ~std::uint64_t{0});
  EXPECT_FALSE(client.should_learn_more());
  const auto first = read_signed(client.submit(additions(1)), MessageType::kRequest)->first;
  EXPECT_GT(first, 5000U);
  EXPECT_LT(first, std::uint64_t{1} << 40) << "one liar does not use the numbers up";
}

// --- with processes

class ClientNumbers : public testing::TestWithParam<std::string> {
 protected:
  void start() {
    for (const PartyId id : nodes_.ids())
      nodes_.start(
          id,
          [&](PartyId, AttestationKernel& kernel, const SigningKey& key,
              FaultHook hook) -> std::unique_ptr<Participant> {
            if (GetParam() == "counter")
              return std::make_unique<BftReplica>(kernel, nodes_.directory(), key, make_store,
                                                  bft_options(3, 16), std::move(hook));
            if (GetParam() == "chain")
              return std::make_unique<ChainNode>(
                  kernel, nodes_.directory(), key, make_store,
                  ChainOptions{.nodes = nodes_.ids(), .first_session = kFirstSession, .batch = 16},
                  std::move(hook));
            PeerReviewOptions tree = tree_options(16);
            for (auto& node : tree.nodes) node.witnesses.clear();
            return std::make_unique<PeerNode>(kernel, nodes_.directory(), key, make_store, tree);
          });
  }
  ClientOptions options() const {
    ClientOptions options = nodes_.client_options(GetParam() == "counter" ? 2 : 3);
    options.retry_after = 50ms;
    return options;
  }

  Nodes nodes_{kTreeParties - 1};
  const SigningKey key_ = key_of(kClient);
};

// The client ran before, an hour later by the clock of then.
TEST_P(ClientNumbers, a_client_whose_clock_was_set_back_is_served) {
  start();
  {
    // With the answer of each node, as a client believes it.
    RawClient earlier(nodes_, 1), at_second(nodes_, 2), at_third(nodes_, 3);
    const auto later = std::chrono::system_clock::now() + 1h;
    earlier.send(earlier.request(
        static_cast<std::uint64_t>(
            std::chrono::duration_cast<std::chrono::nanoseconds>(later.time_since_epoch()).count()),
        {KeyValueMachine::put("key", "old")}));
    for (RawClient* its : {&earlier, &at_second, &at_third})
      EXPECT_EQ(detail::type_of(its->receive()), MessageType::kReply);
  }
  ClientOptions its = options();
  its.timeout = 30s;
  Client client(nodes_.directory(), key_, its);
  client.call(std::vector<Bytes>{KeyValueMachine::put("key", "new")});
  const Bytes got = client.call(std::vector<Bytes>{KeyValueMachine::get("key")}).front();
  EXPECT_EQ(KeyValueMachine::value_of(got), "new");
}

TEST_P(ClientNumbers, a_number_that_was_used_brings_no_old_answer) {
  start();
  RawClient client(nodes_, 1);
  client.send(client.request(7, {KeyValueMachine::put("key", "value")}));
  EXPECT_EQ(detail::type_of(client.receive()), MessageType::kReply);
  client.send(client.request(7, {KeyValueMachine::get("key")}));
  const Bytes said = client.receive();
  const auto refused = read_signed(said, MessageType::kRefused);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->first, 7U);
}

// 5 MiB in one answer: it comes once.
TEST_P(ClientNumbers, an_answer_above_the_limit_is_sent_once) {
  start();
  ClientOptions its = options();
  its.timeout = 30s;
  {
    Client writer(nodes_.directory(), key_, its);
    writer.call(std::vector<Bytes>{KeyValueMachine::put("key", std::string(16'000, 'v'))});
    const auto all = writer.call(std::vector<Bytes>(330, KeyValueMachine::get("key")));
    EXPECT_EQ(all.size(), 330U);
  }
  RawClient client(nodes_, 1, kOtherClient);
  const Bytes request = client.request(7, std::vector<Bytes>(330, KeyValueMachine::get("key")));
  client.send(request);
  EXPECT_GT(client.receive().size(), kMaxKeptAnswerBytes);
  client.send(request);
  EXPECT_EQ(detail::type_of(client.receive()), MessageType::kRefused);
  client.send(client.request(1000, {KeyValueMachine::get("key")}));
  EXPECT_EQ(detail::type_of(client.receive()), MessageType::kReply) << "the node goes on";
}

INSTANTIATE_TEST_SUITE_P(Systems, ClientNumbers, testing::Values("counter", "chain", "peer_review"),
                         [](const auto& system) { return system.param; });

}  // namespace
}  // namespace leat::trusted
