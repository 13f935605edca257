// PeerReview: lies that are told to clients only are found, as clients hand in what they were told.
#include <gtest/gtest.h>

#include <random>

#include "trusted/peer_review/replay.h"
#include "trusted/peer_tree.h"

namespace leat::trusted {
namespace {

using namespace detail;

// The answer that the client gets, with another output.
Bytes falsified(const SigningKey& key, View reply, std::uint64_t more = 1) {
  auto content = *read_signed(reply, MessageType::kReply);
  Items items = content.items;
  Bytes outputs;
  while (items.count() > 0)
    Items::append(outputs, CounterMachine::add(*CounterMachine::value_of(items.take()) + more));
  content.items = *Items::read(outputs, content.items.count());
  return write_signed(key, content);
}

// Node `id` follows the protocol, except in what it tells the client.
void let_lie(Tree& tree, PartyId id, Deviant::Change change) {
  tree.replace(id, std::make_unique<Deviant>(
                       std::make_unique<PeerNode>(tree.kernel(id), tree.directory(), tree.key(id),
                                                  make_counter, tree.options()),
                       tree.key(id), std::move(change)));
}

void expect_convicted(Tree& tree, PartyId liar) {
  const auto found = std::ranges::find_if(tree.changes, [](const auto& change) {
    return change.second.standing == Standing::kExposed;
  });
  ASSERT_NE(found, tree.changes.end()) << "nobody is exposed";
  EXPECT_EQ(found->second.node, liar);
  EXPECT_EQ(found->second.fault.kind, FaultKind::kOutput);
  const auto third = kernel_of(kThird, kTreeParties);
  const auto fault =
      judge(*third, tree.directory(), make_counter, tree.options(), found->second.fault.evidence);
  ASSERT_TRUE(fault) << "the evidence convinces nobody";
  EXPECT_EQ(fault->accused, liar);
}

TEST(PeerReviewAnswers, a_lie_told_to_a_client_only_is_found) {
  for (const PartyId liar : {1U, 3U})
    for (const auto& [checkpoint, piece] : {std::pair{1U, 1U}, {3U, 1U}, {3U, 3U}, {7U, 256U}}) {
      auto options = tree_options();
      options.checkpoint_records = checkpoint;
      options.audit_records = piece;
      Tree tree(options);
      std::mt19937 random(liar);
      let_lie(tree, liar,
              [replies = 0](const SigningKey& key, PartyId, Bytes& message, Outbox&) mutable {
                if (type_of(message) == MessageType::kReply && ++replies == 5)
                  message = falsified(key, message);
                return true;
              });
      for (int i = 0; i < 10; ++i) {
        tree.ask(1 + random() % 5);
        tree.run(40ms, random);
      }
      tree.run(200ms, random);
      expect_convicted(tree, liar);
    }
}

// It has executed nothing of the kind.
TEST(PeerReviewAnswers, an_answer_that_the_log_does_not_have_is_found) {
  Tree tree;
  std::mt19937 random(12);
  let_lie(
      tree, 2,
      [told = false](const SigningKey& key, PartyId to, Bytes& message, Outbox& outbox) mutable {
        if (type_of(message) != MessageType::kReply || std::exchange(told, true)) return true;
        auto content = *read_signed(message, MessageType::kReply);
        content.first += 100;
        outbox.send(to, write_signed(key, content));
        return true;
      });
  tree.ask(1);
  tree.run(200ms, random);
  expect_convicted(tree, 2);
}

TEST(PeerReviewAnswers, a_client_may_hand_in_its_last_answers_long_after_the_audit) {
  for (const std::size_t later : {0U, 15U, 16U}) {
    Tree tree;
    tree.hands_in = false;
    std::mt19937 random(13);
    Bytes lie;
    tree.tap = [&](PartyId from, PartyId, View message) {
      if (from == 2 && type_of(message) == MessageType::kReply && lie.empty())
        lie = falsified(tree.key(2), message);
    };
    tree.ask(2);
    tree.run(1s, random);
    for (std::size_t i = 0; i < later; ++i) {
      tree.ask(1);
      tree.run(40ms, random);
    }
    tree.run(1s, random);
    tree.send(kClient, kWitness, lie);
    tree.run(200ms, random);
    if (later < 16)
      expect_convicted(tree, 2);
    else
      EXPECT_TRUE(tree.changes.empty()) << "nobody keeps the right answer any more";
  }
}

// Neither who hands in nor a witness can turn a right answer against the node that gave it.
TEST(PeerReviewAnswers, right_answers_convict_nobody) {
  auto options = tree_options();
  options.checkpoint_records = 10;
  Tree tree(options);
  std::mt19937 random(14);
  std::vector<Bytes> pieces;
  std::vector<Nonce> nonces;
  Bytes answer;
  tree.tap = [&](PartyId from, PartyId, View message) {
    if (from != 2) return;
    if (type_of(message) == MessageType::kReply) answer.assign(message.begin(), message.end());
    const auto piece = read_piece(message);
    if (!piece) return;
    pieces.emplace_back(message.begin(), message.end());
    nonces.push_back(piece->nonce);
  };
  tree.run(100ms, random);
  const std::size_t before = pieces.size();
  for (int i = 0; i < 6; ++i) {
    tree.ask(2);
    tree.run(40ms, random);
  }
  EXPECT_TRUE(tree.changes.empty());
  const auto third = kernel_of(kThird, kTreeParties);
  const auto judged = [&](std::size_t count, View its_answer, View salt, View digests) {
    PeerProof proof{.accused = 2, .snapshot = {}, .base = {}, .pieces = {}};
    for (std::size_t i = 0; i < count; ++i) proof.pieces.emplace_back(pieces[i]);
    proof.answer = its_answer;
    proof.salt = salt;
    proof.digests = digests;
    return judge(*third, tree.directory(), make_counter, tree.options(), write_proof(proof))
        .has_value();
  };
  const StateDigest digest = digest_of(answer);
  // Logs that end before the answer was given, with any story of what the nonce was made of.
  for (std::size_t count = 0; count <= before; ++count) {
    EXPECT_FALSE(judged(count, answer, {}, digest));
    for (const Nonce& nonce : nonces) EXPECT_FALSE(judged(count, answer, nonce, digest));
  }
  EXPECT_FALSE(judged(pieces.size(), answer, {}, digest));
  // A lie that the node did not sign.
  const Bytes forged = falsified(tree.key(3), answer);
  EXPECT_FALSE(judged(pieces.size(), forged, {}, digest_of(forged)));
  const Bytes signed_by_it = falsified(tree.key(2), answer);
  EXPECT_TRUE(judged(pieces.size(), signed_by_it, {}, {})) << "a lie that it did sign";
}

// Waiting answers have a limit for each client, and are no more than that.
TEST(PeerReviewAnswers, answers_that_wait_are_bounded) {
  Tree tree;
  PeerAudit audit(tree.kernel(4), tree.directory(), make_counter, tree.options(), 1);
  Bytes outputs;
  Items::append(outputs, CounterMachine::add(1));
  const StateDigest of_any{};
  const auto answer = [&](PartyId client, std::uint64_t first) {
    return write_signed(tree.key(2), {.type = MessageType::kReply,
                                      .sender = 2,
                                      .target = client,
                                      .epoch = kSystemEpoch,
                                      .first = first,
                                      .request = of_any,
                                      .items = *Items::read(outputs, 1)});
  };
  std::size_t taken = 0;
  for (std::uint64_t i = 0; i < 1000; ++i)
    if (audit.take_answer(answer(kClient, i)) == PeerAudit::Outcome::kProgress) ++taken;
  EXPECT_EQ(taken, 256U);
  EXPECT_EQ(audit.take_answer(answer(kClient, 0)), PeerAudit::Outcome::kNothing) << "has it";
  EXPECT_EQ(audit.take_answer(answer(kOtherClient, 0)), PeerAudit::Outcome::kProgress);
}

}  // namespace
}  // namespace leat::trusted
