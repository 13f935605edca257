// The pure part of PeerReview: audits, and what they find. peer_answers_test.cc has answers to
// clients.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <random>

#include "leat/error.h"
#include "support/errors.h"
#include "support/scale.h"
#include "trusted/forwarding_kernel.h"
#include "trusted/peer_review/replay.h"
#include "trusted/peer_tree.h"

namespace leat::trusted {
namespace {

using namespace detail;
using namespace std::chrono_literals;

std::size_t resident_bytes() {
  std::ifstream status("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  status >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST(PeerReview, all_nodes_give_the_same_and_audits_find_nothing) {
  for (const unsigned batch : {1U, 8U}) {
    auto options = tree_options(batch);
    options.checkpoint_records = 7;
    options.audit_records = 3;
    Tree tree(options);
    std::mt19937 random(batch);
    std::uint64_t expected = 0;
    for (std::size_t i = 0; i < 20; ++i) {
      const std::size_t commands = 1 + random() % 20;
      tree.ask(commands);
      tree.run(40ms, random);
      EXPECT_EQ(tree.answer(), expected += commands);
    }
    tree.run(400ms, random);
    EXPECT_TRUE(tree.changes.empty());
    // All that was logged was audited, but for the marks since.
    for (PartyId id = 1; id <= 3; ++id)
      EXPECT_GE(tree.witness->audited(id) + 2, tree.nodes[id - 1]->log_records());
  }
}

TEST(PeerReview, grandchildren_get_the_roots_own_words) {
  PeerReviewOptions options = tree_options(4);
  options.nodes = {{1, 0, {5}}, {2, 1, {5}}, {3, 2, {5}}, {4, 3, {5}}};
  Tree tree(options, 4);
  std::mt19937 random(1);
  for (int i = 0; i < 5; ++i) tree.ask(10);
  tree.run(200ms, random);
  std::optional<std::uint64_t> last;
  while (const auto answer = tree.answer()) last = answer;
  EXPECT_EQ(last, 50U);
  EXPECT_TRUE(tree.changes.empty());
}

TEST(PeerReview, case84_who_does_not_answer_is_suspected_until_it_does) {
  Tree tree;
  std::mt19937 random(2);
  tree.cut = {{2, 1}, {2, kWitness}};
  tree.ask(3);
  tree.run(3s, random);
  EXPECT_EQ(tree.witness->standing(2), Standing::kSuspected);
  EXPECT_EQ(tree.witness->standing(3), Standing::kTrusted);
  ASSERT_EQ(tree.changes.size(), 2U) << "the parent's and the witness's";
  for (const auto& [by, change] : tree.changes) {
    EXPECT_EQ(change.node, 2U);
    EXPECT_EQ(change.fault.kind, FaultKind::kSilent);
    EXPECT_TRUE(change.fault.evidence.empty());
  }
  tree.cut.clear();
  tree.run(1s, random);
  EXPECT_EQ(tree.witness->standing(2), Standing::kTrusted);
  ASSERT_EQ(tree.changes.size(), 4U);
  for (std::size_t i = 2; i < 4; ++i)
    EXPECT_EQ(tree.changes[i].second.standing, Standing::kTrusted);
}

// It answers audits, and says that it never got what its parent sent.
TEST(PeerReview, case81_who_does_not_log_what_its_parent_sent_is_suspected) {
  Tree tree;
  std::mt19937 random(3);
  tree.cut = {{1, 2}};
  auto deaf = std::make_unique<PeerNode>(tree.kernel(2), tree.directory(), tree.key(2),
                                         make_counter, tree.options());
  struct Deaf final : Participant {
    explicit Deaf(std::unique_ptr<PeerNode> its) : node(std::move(its)) {}
    void receive(PartyId from, View message, Time now, Outbox& outbox) override {
      if (peer_message(message) != PeerMessage::kRecord) node->receive(from, message, now, outbox);
    }
    void settle(Time now, Outbox& outbox) override { node->settle(now, outbox); }
    void idle(Time now, Outbox& outbox) override { node->idle(now, outbox); }
    std::unique_ptr<PeerNode> node;
  };
  tree.replace(2, std::make_unique<Deaf>(std::move(deaf)));
  tree.ask(1);
  tree.run(5s, random);
  EXPECT_EQ(tree.witness->standing(2), Standing::kSuspected);
  EXPECT_GT(tree.witness->audited(2), 0U);
}

// Answers audits by pieces of its own making.
class Answering final : public Participant {
 public:
  using Answer = std::function<void(Answering&, const Audit&, Outbox&)>;
  Answering(Tree& tree, PartyId id, Answer answer)
      : id_(id), kernel_(tree.kernel(id)), key_(tree.key(id)), answer_(std::move(answer)) {}
  void receive(PartyId, View message, Time, Outbox& outbox) override {
    if (const auto audit = read_audit(message)) answer_(*this, *audit, outbox);
  }
  void idle(Time, Outbox&) override {}

  void attest(EntryType type, View body) {
    log.push_back(detail::attest(
        kernel_, {.session = kFirstSession + id_ - 1, .kind = Kind::kSend},
        write_log_entry({.type = type, .received = {}, .digest = {}, .body = body})));
  }
  // Its records from there on, with that tail.
  void send(PartyId to, const Audit& audit, std::uint64_t from, std::uint64_t end,
            std::uint64_t tail, Outbox& outbox) const {
    Bytes entries;
    for (std::uint64_t i = from; i < end; ++i) append_entry(entries, log[i], {});
    outbox.send(to, write_piece(key_,
                                {.sender = id_,
                                 .epoch = kSystemEpoch,
                                 .from = from,
                                 .tail = tail,
                                 .nonce = audit.nonce,
                                 .entries = {}},
                                entries));
  }

  std::vector<Bytes> log;

 private:
  const PartyId id_;
  AttestationKernel& kernel_;
  const SigningKey& key_;
  const Answer answer_;
};

// How often the witness asks that node.
std::function<void(PartyId, PartyId, View)> counting_audits(PartyId node, unsigned& audits) {
  return [node, &audits](PartyId, PartyId to, View message) {
    if (to == node && peer_message(message) == PeerMessage::kAudit) ++audits;
  };
}

TEST(PeerReview, who_answers_audits_with_old_entries_and_a_made_up_tail_is_suspected) {
  Tree tree;
  std::mt19937 random(7);
  tree.replace(2, std::make_unique<Answering>(tree, 2, [](auto& self, auto& audit, auto& outbox) {
                 if (self.log.empty()) self.attest(EntryType::kMark, audit.nonce);
                 // The first is right. Later ones say that the log is long, and show its beginning.
                 self.send(kWitness, audit, 0, 1, audit.from == 0 ? 1 : 1'000'000, outbox);
               }));
  unsigned audits = 0;
  tree.tap = counting_audits(2, audits);
  tree.run(60s, random);
  EXPECT_EQ(tree.witness->audited(2), 1U);
  EXPECT_EQ(tree.witness->standing(2), Standing::kSuspected);
  EXPECT_LT(audits, 310U) << "what leads no further is not asked for at once again";
}

// It makes up what was replayed long ago, so that it ends as the audit wants.
TEST(PeerReview, a_forged_old_entry_with_the_nonce_completes_no_audit) {
  Tree tree;
  std::mt19937 random(8);
  tree.replace(2, std::make_unique<Answering>(tree, 2, [](auto& self, auto& audit, auto& outbox) {
                 if (self.log.empty()) return self.attest(EntryType::kMark, audit.nonce);
                 if (audit.from > 0)
                   std::ranges::copy(audit.nonce, self.log[0].begin() + kHeaderBytes + 4);
                 self.send(kWitness, audit, 0, 1, 1, outbox);
               }));
  tree.run(5s, random);
  EXPECT_EQ(tree.witness->audited(2), 1U);
  EXPECT_EQ(tree.witness->standing(2), Standing::kSuspected);
}

TEST(PeerReview, the_tail_of_a_log_is_said_once_for_each_nonce) {
  Tree tree;
  std::mt19937 random(9);
  tree.replace(2, std::make_unique<Answering>(tree, 2, [](auto& self, auto& audit, auto& outbox) {
                 self.attest(EntryType::kMark, audit.nonce);
                 self.send(kWitness, audit, audit.from, audit.from + 1, audit.from + 2, outbox);
               }));
  tree.run(5s, random);
  EXPECT_EQ(tree.witness->audited(2), 1U);
  EXPECT_EQ(tree.witness->standing(2), Standing::kSuspected);
}

// Each piece leads further, in time, and there is no end to them.
TEST(PeerReview, an_audit_that_does_not_end_is_a_suspicion) {
  auto options = tree_options();
  options.checkpoint_records = 1U << 20;  // marks have no digest
  Tree tree(options);
  std::mt19937 random(10);
  Participant::Time asked{};
  tree.replace(2, std::make_unique<Answering>(tree, 2, [&](auto& self, auto& audit, auto& outbox) {
                 if (std::exchange(asked, tree.now) == tree.now) return;  // the slowest that it can
                 self.attest(EntryType::kMark, audit.nonce);
                 self.send(kWitness, audit, audit.from, audit.from + 1, 1'000'000, outbox);
               }));
  tree.run(options.audit_patience - 1s, random);
  EXPECT_EQ(tree.witness->standing(2), Standing::kTrusted);
  tree.run(2s, random);
  EXPECT_EQ(tree.witness->standing(2), Standing::kSuspected);
  EXPECT_GT(tree.witness->audited(2), 10U);
}

// What a witness keeps of a node, in case that it lies, has a limit in bytes.
TEST(PeerReview, a_witness_keeps_no_more_of_a_node_than_it_may) {
  auto options = tree_options();
  options.checkpoint_records = 1U << 20;
  options.max_evidence_bytes = std::size_t{64} << 10;
  Tree tree(options);
  std::mt19937 random(11);
  std::size_t bytes = 0;
  tree.tap = [&](PartyId from, PartyId, View message) {
    if (from == 2 && peer_message(message) == PeerMessage::kPiece) bytes += message.size();
  };
  for (int i = 0; i < 400; ++i) {
    tree.ask(1);
    tree.run(40ms, random);
  }
  tree.run(3s, random);
  EXPECT_GT(bytes, options.max_evidence_bytes);
  EXPECT_EQ(tree.witness->standing(2), Standing::kSuspected);
  const std::uint64_t audited = tree.witness->audited(2);
  EXPECT_GT(audited, 50U);
  tree.run(3s, random);
  EXPECT_EQ(tree.witness->audited(2), audited);
  EXPECT_TRUE(std::ranges::none_of(tree.changes, [](const auto& change) {
    return change.second.standing == Standing::kExposed;
  }));
}

TEST(PeerReview, a_child_whose_messages_were_lost_catches_up_by_way_of_its_witness) {
  Tree tree;
  std::mt19937 random(4);
  tree.cut = {{1, 2}};
  tree.ask(5);
  tree.run(1s, random);
  EXPECT_EQ(tree.answer(), 5U);
  EXPECT_TRUE(tree.changes.empty());
}

TEST(PeerReview, case89_small_and_large_pieces_give_the_same_verdict) {
  for (const unsigned records : {1U, 64U, 4096U}) {
    auto options = tree_options();
    options.audit_records = records;
    options.audit_period = 1h;
    options.checkpoint_records = 50;
    Tree tree(options);
    std::mt19937 random(records);
    tree.run(20ms, random);  // of nothing: the marks alone
    EXPECT_EQ(tree.witness->audited(1), 1U);
    for (int i = 0; i < 5; ++i) tree.ask(60);
    tree.run(2s, random);
    EXPECT_EQ(tree.nodes[0]->log_records(), 301U);
    tree.now += 1h;
    tree.run(20ms, random);
    EXPECT_EQ(tree.witness->audited(1), 302U);
    EXPECT_EQ(tree.witness->audited(2), 302U);
    EXPECT_TRUE(tree.changes.empty());
  }
}

// LEAT_TEST_ENTRIES, such as 1000000, is the long form. Audited all the time a log needs no more
// memory the longer it gets; audited once, at its end, it is judged the same, and auditing it takes
// no memory but frees it.
TEST(PeerReview, case89_a_long_log_is_audited_in_bounded_memory) {
  constexpr std::size_t kSlackBytes = std::size_t{64} << 20;
  constexpr std::size_t kCommands = 500;
  const char* wish = std::getenv("LEAT_TEST_ENTRIES");
  const std::size_t rounds =
      (wish != nullptr ? std::strtoull(wish, nullptr, 10) : leat::detail::scaled(4000)) /
          kCommands +
      1;
  for (const bool all_the_time : {true, false}) {
    auto options = tree_options();
    options.audit_records = 4096;
    options.audit_period = all_the_time ? 0ms : 1h;
    Tree tree(options);
    std::mt19937 random(6);
    tree.run(20ms, random);
    std::size_t early = 0;
    for (std::size_t round = 0; round < rounds; ++round) {
      tree.ask(kCommands);
      tree.run(40ms, random);
      ASSERT_EQ(tree.answer(), (round + 1) * kCommands);
      if (round == rounds / 4) early = resident_bytes();
    }
    const std::uint64_t entries = rounds * kCommands;
    EXPECT_GT(tree.nodes[0]->log_records(), entries);
    const std::size_t late = resident_bytes();
    if (all_the_time) {
      EXPECT_LT(late, early + kSlackBytes);
    }
    tree.now += 2h;
    tree.run(1s, random);
    // One piece for each question, another question for each piece: all of it without a pause.
    for (PartyId id = 1; id <= 3; ++id) EXPECT_GT(tree.witness->audited(id), entries) << id;
    EXPECT_LT(resident_bytes(), late + kSlackBytes);
    EXPECT_TRUE(tree.changes.empty());
    RecordProperty(all_the_time ? "resident_all_the_time" : "resident_once",
                   std::to_string(late >> 20) + " MiB");
  }
}

// What a witness that lies can do with what a correct node signed.
TEST(PeerReview, case85_forged_stale_and_partial_evidence_exposes_nobody) {
  auto options = tree_options();
  options.audit_records = 4;
  options.checkpoint_records = 10;
  Tree tree(options);
  std::mt19937 random(5);
  std::vector<Bytes> pieces;
  tree.tap = [&](PartyId from, PartyId, View message) {
    if (from == 2 && peer_message(message) == PeerMessage::kPiece)
      pieces.emplace_back(message.begin(), message.end());
  };
  for (int i = 0; i < 10; ++i) {
    tree.ask(5);
    tree.run(40ms, random);
  }
  ASSERT_GT(pieces.size(), 10U);
  const auto third = kernel_of(kThird, kTreeParties);
  const auto judged = [&](const std::vector<Bytes>& list, View snapshot = {}, View base = {}) {
    const PeerProof proof{
        .accused = 2, .snapshot = snapshot, .base = base, .pieces = {list.begin(), list.end()}};
    return judge(*third, tree.directory(), make_counter, tree.options(), write_proof(proof))
        .has_value();
  };
  EXPECT_FALSE(judged(pieces));
  EXPECT_FALSE(judged({pieces.begin() + 3, pieces.end()})) << "partial";
  EXPECT_FALSE(judged({pieces[0], pieces[0], pieces[1], pieces[0]})) << "stale";
  for (std::size_t skip = 0; skip < pieces.size(); ++skip) {
    auto some = pieces;
    some.erase(some.begin() + static_cast<std::ptrdiff_t>(skip));
    EXPECT_FALSE(judged(some)) << skip;
  }
  for (std::size_t at = 0; at < pieces[0].size(); ++at) {
    auto forged = pieces[0];
    forged[at] ^= std::byte{1};
    EXPECT_FALSE(judged({forged})) << at;
  }
  // A state that the node never had, and one that it did at another place.
  const auto piece = read_piece(pieces[0]);
  PeerState state(tree.directory(), kSystemEpoch, make_counter, tree.options(), 1);
  EXPECT_FALSE(judged({pieces.begin() + 1, pieces.end()}, state.save(), piece->entries[0].first));
  EXPECT_FALSE(judge(*third, tree.directory(), make_counter, tree.options(), {}));
}

// A kernel whose daemon has ended.
class GoneKernel final : public ForwardingKernel {
 public:
  using ForwardingKernel::ForwardingKernel;
  Verdict verify(View, Kind) noexcept override { return Verdict::kUnavailable; }
  Verdict verify_stateless(View, Kind) noexcept override { return Verdict::kUnavailable; }
};

TEST(PeerReview, an_attestor_that_is_gone_says_nothing_of_anybody) {
  Tree tree(tree_options());
  std::mt19937 random(6);
  std::vector<Bytes> pieces;
  tree.tap = [&](PartyId from, PartyId, View message) {
    if (from == 2 && peer_message(message) == PeerMessage::kPiece)
      pieces.emplace_back(message.begin(), message.end());
  };
  tree.ask(5);
  tree.run(100ms, random);
  ASSERT_FALSE(pieces.empty());
  const PeerProof proof{.accused = 2, .pieces = {pieces.begin(), pieces.end()}};
  const auto third = kernel_of(kThird, kTreeParties);
  EXPECT_FALSE(judge(*third, tree.directory(), make_counter, tree.options(), write_proof(proof)));
  GoneKernel gone(*third);
  leat::detail::expect_error(ErrorCode::kUnavailable, [&] {
    (void)judge(gone, tree.directory(), make_counter, tree.options(), write_proof(proof));
  });
}

TEST(PeerReview, refuses_what_is_no_tree) {
  auto kernel = kernel_of(1, kTreeParties);
  const Directory directory(parties(kTreeParties));
  const SigningKey key = key_of(1);
  const auto refused = [&](const std::function<void(PeerReviewOptions&)>& change) {
    auto options = tree_options();
    change(options);
    try {
      PeerNode(*kernel, directory, key, make_counter, options);
      return false;
    } catch (const Error& error) {
      return error.code() == ErrorCode::kInvalidArgument;
    }
  };
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto& options) { options.nodes.clear(); }));
  EXPECT_TRUE(refused([](auto& options) { options.nodes[0].parent = 2; }));
  EXPECT_TRUE(refused([](auto& options) { options.nodes[1].parent = 3; }));
  EXPECT_TRUE(refused([](auto& options) { options.nodes[2].id = 2; }));
  EXPECT_TRUE(refused([](auto& options) { options.nodes[0].id = 7; }));
  EXPECT_TRUE(refused([](auto& options) { options.batch = 0; }));
  EXPECT_TRUE(refused([](auto& options) { options.first_session = 2; }));
}

}  // namespace
}  // namespace leat::trusted
