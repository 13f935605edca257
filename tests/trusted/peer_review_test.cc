// The pure part of PeerReview: nodes, witnesses and a client in this process.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <fstream>
#include <map>
#include <random>

#include "leat/error.h"
#include "support/scale.h"
#include "trusted/doubles.h"
#include "trusted/parts/quorum.h"
#include "trusted/peer_parties.h"
#include "trusted/peer_review/replay.h"

namespace leat::trusted {
namespace {

using namespace detail;
using namespace std::chrono_literals;

// Parties on links that are first in, first out, and a clock that stands until it is moved.
class Tree final {
 public:
  explicit Tree(const PeerReviewOptions& options = tree_options(), std::size_t count = 3)
      : options_(options), directory_(parties(count + 1)), client_key_(key_of(kClient)) {
    for (PartyId id = 1; id <= count + 1; ++id) {
      keys_.push_back(key_of(id));
      kernels_.push_back(kernel_of(id, count + 1));
    }
    const auto last = static_cast<PartyId>(count + 1);
    for (PartyId id = 1; id <= count; ++id) {
      auto node = std::make_unique<PeerNode>(*kernels_[id - 1], directory_, keys_[id - 1],
                                             make_counter, options_, hook(id));
      nodes.push_back(node.get());
      parties_[id] = std::move(node);
    }
    auto its = std::make_unique<PeerWitness>(last, *kernels_.back(), directory_, make_counter,
                                             options_, hook(last));
    witness = its.get();
    parties_[last] = std::move(its);
    ClientOptions client{.self = kClient, .epoch = kSystemEpoch, .nodes = {}, .quorum = count};
    for (PartyId id = 1; id <= count; ++id) client.nodes.push_back(id);
    client.window = 16;
    quorum = std::make_unique<Quorum>(directory_, client_key_, client, 1000);
  }

  void replace(PartyId id, std::unique_ptr<Participant> party) { parties_[id] = std::move(party); }
  AttestationKernel& kernel(PartyId id) { return *kernels_[id - 1]; }
  const SigningKey& key(PartyId id) const { return keys_[id - 1]; }
  const Directory& directory() const { return directory_; }
  const PeerReviewOptions& options() const { return options_; }

  void ask(std::size_t commands) { send(kClient, 1, quorum->submit(additions(commands))); }
  std::optional<std::uint64_t> answer() {
    const auto answer = quorum->take();
    return answer ? CounterMachine::value_of(answer->outputs.back()) : std::nullopt;
  }

  void send(PartyId from, PartyId to, View message) {
    if (tap) tap(from, to, message);
    if (std::ranges::find(cut, std::pair(from, to)) == cut.end())
      links_[{from, to}].emplace_back(message.begin(), message.end());
  }

  // Delivers everything in an order of chance, and moves the clock, for so long.
  void run(std::chrono::milliseconds time, std::mt19937& random) {
    for (const auto end = now + time; now < end; now += Participant::kTick) {
      for (auto& [id, party] : parties_) {
        Sender outbox(*this, id);
        party->idle(now, outbox);
      }
      deliver(random);
    }
  }

  std::vector<std::pair<PartyId, StandingChange>> changes;
  std::vector<PeerNode*> nodes;
  PeerWitness* witness = nullptr;
  std::unique_ptr<Quorum> quorum;
  std::vector<std::pair<PartyId, PartyId>> cut;
  std::function<void(PartyId, PartyId, View)> tap;
  bool hands_in = true;  // the client passes on all answers to the witness
  Participant::Time now{1h};

 private:
  struct Sender final : Outbox {
    Sender(Tree& its_tree, PartyId its_from) : tree(its_tree), from(its_from) {}
    void send(PartyId to, View message) override { tree.send(from, to, message); }
    Tree& tree;
    PartyId from;
  };

  StandingHook hook(PartyId id) {
    return [this, id](const StandingChange& change) { changes.emplace_back(id, change); };
  }

  void deliver(std::mt19937& random) {
    for (;;) {
      std::vector<std::pair<PartyId, PartyId>> ready;
      for (const auto& [link, messages] : links_)
        if (!messages.empty()) ready.push_back(link);
      if (ready.empty()) {
        for (auto& [id, party] : parties_) {
          Sender outbox(*this, id);
          party->settle(now, outbox);
        }
        if (std::ranges::all_of(links_, [](const auto& link) { return link.second.empty(); }))
          return;
        continue;
      }
      const auto link = ready[random() % ready.size()];
      const Bytes message = std::move(links_[link].front());
      links_[link].pop_front();
      Sender outbox(*this, link.second);
      if (link.second == kClient) {
        if (hands_in) send(kClient, static_cast<PartyId>(parties_.size()), message);
        quorum->receive(message);
      } else if (parties_.contains(link.second)) {
        parties_[link.second]->receive(link.first, message, now, outbox);
        if (random() % 3 == 0) parties_[link.second]->settle(now, outbox);
      }
    }
  }

  const PeerReviewOptions options_;
  const Directory directory_;
  const SigningKey client_key_;
  std::vector<SigningKey> keys_;
  std::vector<std::unique_ptr<LocalKernel>> kernels_;
  std::map<PartyId, std::unique_ptr<Participant>> parties_;
  std::map<std::pair<PartyId, PartyId>, std::deque<Bytes>> links_;
};

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

TEST(PeerReview, a_lie_told_to_a_client_only_is_found) {
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
TEST(PeerReview, an_answer_that_the_log_does_not_have_is_found) {
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

TEST(PeerReview, a_client_may_hand_in_its_last_answers_long_after_the_audit) {
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
TEST(PeerReview, right_answers_convict_nobody) {
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
TEST(PeerReview, answers_that_wait_are_bounded) {
  Tree tree;
  PeerAudit audit(tree.kernel(4), tree.directory(), make_counter, tree.options(), 1);
  Bytes outputs;
  Items::append(outputs, CounterMachine::add(1));
  const auto answer = [&](PartyId client, std::uint64_t first) {
    return write_signed(tree.key(2), {.type = MessageType::kReply,
                                      .sender = 2,
                                      .target = client,
                                      .epoch = kSystemEpoch,
                                      .first = first,
                                      .items = *Items::read(outputs, 1)});
  };
  std::size_t taken = 0;
  for (std::uint64_t i = 0; i < 1000; ++i)
    if (audit.take_answer(answer(kClient, i)) == PeerAudit::Outcome::kProgress) ++taken;
  EXPECT_EQ(taken, 256U);
  EXPECT_EQ(audit.take_answer(answer(kClient, 0)), PeerAudit::Outcome::kNothing) << "has it";
  EXPECT_EQ(audit.take_answer(answer(kOtherClient, 0)), PeerAudit::Outcome::kProgress);
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
