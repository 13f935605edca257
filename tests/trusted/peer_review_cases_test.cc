// Cases 81 to 89 of the test plan: nodes and their witness as processes, liars among them as test
// doubles that speak the wire protocol with a kernel and a key of their own.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "leat/error.h"
#include "trusted/doubles.h"
#include "trusted/nodes.h"
#include "trusted/peer_parties.h"
#include "trusted/peer_review/messages.h"

namespace leat::trusted {
namespace {

using namespace detail;
using namespace std::chrono_literals;

constexpr auto kCleared = static_cast<FaultKind>(99);
constexpr auto kConnected = static_cast<FaultKind>(98);
constexpr auto kAllAccused = static_cast<FaultKind>(97);

// What stands for a change in a report of Nodes.
StandingHook telling(FaultHook hook) {
  return [hook = std::move(hook)](const StandingChange& change) {
    if (change.standing == Standing::kTrusted)
      hook({change.node, kCleared, {}});
    else
      hook(change.fault);
  };
}

// Patient, because the machine may be busy; tests of suspicion are not.
PeerReviewOptions case_options(std::chrono::milliseconds patience = kLong) {
  auto options = tree_options(4);
  options.patience = patience;
  return options;
}

Nodes::Make correct(const Directory& directory, const PeerReviewOptions& options) {
  return [&directory, options](PartyId id, AttestationKernel& kernel, const SigningKey& key,
                               FaultHook hook) -> std::unique_ptr<Participant> {
    if (id == kWitness)
      return std::make_unique<PeerWitness>(id, kernel, directory, make_counter, options,
                                           telling(std::move(hook)));
    return std::make_unique<PeerNode>(kernel, directory, key, make_counter, options,
                                      telling(std::move(hook)));
  };
}

void start_tree(Nodes& nodes, PartyId liar = 0, const Nodes::Make& odd = {},
                const PeerReviewOptions& options = case_options()) {
  for (PartyId id = 1; id <= kTreeParties; ++id)
    nodes.start(id, id == liar ? odd : correct(nodes.directory(), options));
}

// Believes `quorum` of the nodes; the witness does not count as one.
Client connect(const Nodes& nodes, const SigningKey& key, std::size_t quorum,
               std::chrono::milliseconds timeout = kLong) {
  ClientOptions options = nodes.client_options(quorum);
  options.nodes = {1, 2, 3};
  options.timeout = timeout;
  return {nodes.directory(), key, options};
}

// Expects that report next, not counting suspicions of other nodes, which may just be slow. Its
// evidence, if that kind has any, must convince a third party.
void expect_fault(Nodes& nodes, PartyId accused, FaultKind kind) {
  std::optional<Report> report;
  do {
    report = nodes.report(kLong);
    ASSERT_TRUE(report) << "nobody is found out";
  } while (report->fault.accused != accused && report->fault.evidence.empty());
  EXPECT_EQ(report->fault.accused, accused);
  EXPECT_NE(report->by, accused);
  EXPECT_EQ(report->fault.kind, kind) << to_string(report->fault.kind);
  if (kind == FaultKind::kSilent || kind == kCleared) {
    EXPECT_TRUE(report->fault.evidence.empty());
    return;
  }
  const auto third = kernel_of(kThird, kTreeParties);
  const auto fault =
      judge(*third, nodes.directory(), make_counter, case_options(), report->fault.evidence);
  ASSERT_TRUE(fault) << "the evidence convinces nobody";
  EXPECT_EQ(fault->accused, accused);
  EXPECT_EQ(fault->kind, kind);
}

// An entry of a piece, and what a forger does to pieces before it signs them again.
struct Entry {
  Bytes record;
  std::vector<Bytes> received;
};
using Forge = std::function<void(Piece& piece, std::vector<Entry>& entries)>;

Nodes::Make forger(const Directory& directory, const Forge& forge,
                   const PeerReviewOptions& options = case_options()) {
  const auto change = [forge](const SigningKey& key, PartyId, Bytes& message, Outbox&) {
    auto piece = read_piece(message);
    if (!piece) return true;
    std::vector<Entry> entries;
    for (const auto& [record, received] : piece->entries) {
      entries.push_back({Bytes(record.begin(), record.end()), {}});
      for (const View one : received) entries.back().received.emplace_back(one.begin(), one.end());
    }
    forge(*piece, entries);
    Bytes bytes;
    for (const Entry& entry : entries) append_entry(bytes, entry.record, entry.received);
    message = write_piece(key, *piece, bytes);
    return true;
  };
  return [&directory, change, options](PartyId, AttestationKernel& kernel, const SigningKey& key,
                                       const FaultHook&) {
    return std::make_unique<Deviant>(
        std::make_unique<PeerNode>(kernel, directory, key, make_counter, options), key, change);
  };
}

// Attests what a test says when a record of the root comes, and answers audits by what it attested.
class Liar final : public Participant {
 public:
  using Act = std::function<void(Liar&, View message, Outbox&)>;
  Liar(PartyId id, AttestationKernel& kernel, const SigningKey& key, Act act)
      : id_(id), kernel_(kernel), key_(key), act_(std::move(act)) {}

  void receive(PartyId from, View message, Time, Outbox& outbox) override {
    const auto audit = read_audit(message);
    if (!audit) return act_(*this, message, outbox);
    if (audit->nonce != nonce_) log(EntryType::kMark, audit->nonce);
    nonce_ = audit->nonce;
    Bytes entries;
    for (std::size_t i = audit->from; i < log_.size(); ++i)
      append_entry(entries, log_[i].first, log_[i].second);
    outbox.send(from, write_piece(key_,
                                  {.sender = id_,
                                   .epoch = kSystemEpoch,
                                   .from = audit->from,
                                   .tail = log_.size(),
                                   .nonce = nonce_,
                                   .entries = {}},
                                  entries));
  }
  void idle(Time, Outbox&) override {}

  const Bytes& log(EntryType type, View body) {
    const Bytes payload =
        write_log_entry({.type = type, .received = position, .digest = {}, .body = body});
    log_.emplace_back(
        attest(kernel_, {.session = kFirstSession + id_ - 1, .kind = Kind::kSend}, payload),
        received);
    position.clear();
    received.clear();
    return log_.back().first;
  }

  std::vector<StreamPosition> position;  // of the next entry
  std::vector<Bytes> received;
  unsigned calls = 0;

 private:
  const PartyId id_;
  AttestationKernel& kernel_;
  const SigningKey& key_;
  const Act act_;
  Nonce nonce_{};
  std::vector<std::pair<Bytes, std::vector<Bytes>>> log_;
};

Nodes::Make peer_liar(Liar::Act act) {
  return [act](PartyId id, AttestationKernel& kernel, const SigningKey& key, const FaultHook&) {
    return std::make_unique<Liar>(id, kernel, key, act);
  };
}

bool is_content(View message) {
  if (peer_message(message) != PeerMessage::kRecord) return false;
  const auto entry = read_log_entry(payload_of(message.subspan(1)));
  return entry && entry->type == EntryType::kContent;
}

void ask_in_vain(const Nodes& nodes, std::size_t quorum = 3) {
  const SigningKey key = key_of(kClient);
  Client client = connect(nodes, key, quorum, 300ms);
  EXPECT_THROW(client.call(additions(1)), Error);
}

TEST(PeerReviewProcesses, all_nodes_answer_alike_and_nobody_is_exposed) {
  Nodes nodes(kTreeParties);
  start_tree(nodes);
  const SigningKey key = key_of(kClient);
  Client client = connect(nodes, key, 3);
  for (std::uint64_t i = 1; i <= 20; ++i) {
    const auto outputs = client.call(additions(25));
    EXPECT_EQ(CounterMachine::value_of(outputs.back()), 25 * i);
  }
  EXPECT_FALSE(nodes.report(300ms));
}

TEST(PeerReviewProcesses, case81_who_leaves_out_a_message_that_it_has_answered_is_exposed) {
  Nodes nodes(kTreeParties);
  start_tree(nodes, 3, forger(nodes.directory(), [](Piece&, std::vector<Entry>& entries) {
               for (auto& entry : entries) entry.received.clear();
             }));
  const SigningKey key = key_of(kClient);
  connect(nodes, key, 2).call(additions(1));
  expect_fault(nodes, 3, FaultKind::kLog);
}

TEST(PeerReviewProcesses, case82_who_rewrites_reorders_or_cuts_its_log_is_exposed) {
  const Forge changes[] = {
      [](Piece&, auto& entries) { entries.back().record[kHeaderBytes + 10] ^= std::byte{1}; },
      [](Piece&, auto& entries) {
        if (entries.size() > 1) std::swap(entries[0], entries[1]);
      },
      [](Piece&, auto& entries) {
        if (entries.size() > 1) entries.erase(entries.begin());
      },
      [](Piece& piece, auto& entries) {  // without the mark, which says how long it is
        if (entries.size() < 2) return;
        entries.pop_back();
        --piece.tail;
      },
      [](Piece& piece, auto& entries) {
        entries.clear();
        piece.tail = piece.from;
      }};
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    SCOPED_TRACE(i);
    Nodes nodes(kTreeParties);
    start_tree(nodes, 2, forger(nodes.directory(), changes[i]));
    const SigningKey key = key_of(kClient);
    connect(nodes, key, 2).call(additions(40));
    expect_fault(nodes, 2, FaultKind::kLog);
  }
}

// Says one more than is true.
class WrongCounter final : public StateMachine {
 public:
  void execute(std::span<const std::byte> command, Bytes& output) override {
    Bytes right;
    counter_.execute(command, right);
    const Bytes wrong = CounterMachine::add(CounterMachine::value_of(right).value_or(0) + 1);
    output.insert(output.end(), wrong.begin(), wrong.end());
  }
  void keep() noexcept override { counter_.keep(); }
  void undo() noexcept override { counter_.undo(); }
  void save(Bytes& state) const override { counter_.save(state); }
  bool load(std::span<const std::byte> state) override { return counter_.load(state); }

 private:
  CounterMachine counter_;
};

TEST(PeerReviewProcesses, case83_who_gives_another_output_than_the_reference_is_exposed) {
  for (const PartyId id : {1U, 3U}) {
    Nodes nodes(kTreeParties);
    start_tree(nodes, id,
               [&](PartyId, AttestationKernel& kernel, const SigningKey& key, const FaultHook&) {
                 return std::make_unique<PeerNode>(
                     kernel, nodes.directory(), key,
                     [] { return std::make_unique<WrongCounter>(); }, case_options());
               });
    const SigningKey key = key_of(kClient);
    Client client = connect(nodes, key, 1);
    // The lie may take effect, or be found out before.
    client.submit(additions(1));
    expect_fault(nodes, id, FaultKind::kOutput);
  }
}

// Reports once that it is connected to all others, which nodes are before they serve.
class SaysWhenConnected final : public Participant {
 public:
  SaysWhenConnected(PartyId self, std::unique_ptr<Participant> inner, FaultHook hook)
      : self_(self), inner_(std::move(inner)), hook_(std::move(hook)) {}

  void receive(PartyId from, View message, Time now, Outbox& outbox) override {
    say();
    inner_->receive(from, message, now, outbox);
  }
  void settle(Time now, Outbox& outbox) override { inner_->settle(now, outbox); }
  void idle(Time now, Outbox& outbox) override {
    say();
    inner_->idle(now, outbox);
  }

 private:
  void say() {
    if (!std::exchange(said_, true)) hook_({self_, kConnected, {}});
  }

  const PartyId self_;
  const std::unique_ptr<Participant> inner_;
  const FaultHook hook_;
  bool said_ = false;
};

TEST(PeerReviewProcesses, case84_a_stopped_node_is_suspected_and_cleared_when_it_goes_on) {
  Nodes nodes(kTreeParties);
  const auto make = correct(nodes.directory(), case_options(1500ms));
  start_tree(nodes, kWitness,
             [&](PartyId id, AttestationKernel& kernel, const SigningKey& own, FaultHook hook) {
               return std::make_unique<SaysWhenConnected>(id, make(id, kernel, own, hook), hook);
             });
  const SigningKey key = key_of(kClient);
  connect(nodes, key, 3).call(additions(1));
  // A stopped node does not answer new connections either.
  std::optional<Report> report;
  do {
    report = nodes.report(kLong);
    ASSERT_TRUE(report) << "the witness does not reach every node";
  } while (report->fault.kind != kConnected);
  kill(nodes.process(3), SIGSTOP);
  expect_fault(nodes, 3, FaultKind::kSilent);
  kill(nodes.process(3), SIGCONT);
  expect_fault(nodes, 3, kCleared);
}

// Takes pieces that a correct node signed for it, and accuses by what it makes of them. Reports
// once when every node has answered audits that came behind accusations of every kind.
class FalseWitness final : public Participant {
 public:
  explicit FalseWitness(FaultHook hook) : hook_(std::move(hook)) {}

  void receive(PartyId from, View message, Time, Outbox& outbox) override {
    if (!read_piece(message)) return;
    asked_.erase(from);
    const Bytes piece(message.begin(), message.end());
    std::vector<Bytes> proofs;
    const auto accuse = [&](View snapshot, View base, std::vector<View> pieces) {
      proofs.push_back(write_proof(
          {.accused = from, .snapshot = snapshot, .base = base, .pieces = std::move(pieces)}));
    };
    Bytes forged = piece;
    forged[forged.size() / 2] ^= std::byte{1};
    accuse({}, {}, {piece});
    accuse({}, {}, {forged});
    accuse(piece, read_piece(piece)->entries[0].first, {piece});
    if (!older_.empty()) accuse({}, {}, {piece, older_});
    older_ = piece;
    for (const Bytes& proof : proofs)
      for (const PartyId to : kAccused) outbox.send(to, proof);
    ++pieces_[from];
    const bool all_have_judged = std::ranges::all_of(
        kAccused, [this](PartyId node) { return pieces_[node] >= kPiecesOfEach; });
    if (all_have_judged && !std::exchange(said_, true)) hook_({kWitness, kAllAccused, {}});
  }
  // The next audit of a node only when it has answered the one before.
  void idle(Time, Outbox& outbox) override {
    nonce_[0] = static_cast<std::byte>(std::to_integer<unsigned>(nonce_[0]) + 1);
    for (const PartyId to : kAccused)
      if (asked_.insert(to).second) outbox.send(to, write_audit({nonce_, 0}));
  }

 private:
  static constexpr std::array<PartyId, 3> kAccused{1, 2, 3};
  static constexpr unsigned kPiecesOfEach = 5;

  const FaultHook hook_;
  Nonce nonce_{};
  Bytes older_;
  std::set<PartyId> asked_;
  std::map<PartyId, unsigned> pieces_;
  bool said_ = false;
};

TEST(PeerReviewProcesses, case85_a_witness_that_lies_exposes_nobody) {
  Nodes nodes(kTreeParties);
  start_tree(nodes, kWitness, [](PartyId, AttestationKernel&, const SigningKey&, FaultHook hook) {
    return std::make_unique<FalseWitness>(std::move(hook));
  });
  const SigningKey key = key_of(kClient);
  Client client = connect(nodes, key, 3);
  for (int i = 0; i < 5; ++i) client.call(additions(3));
  const auto report = nodes.report(kLong);
  ASSERT_TRUE(report) << "the witness gets no answers";
  EXPECT_EQ(report->fault.kind, kAllAccused) << to_string(report->fault.kind);
  client.call(additions(3));
  EXPECT_FALSE(nodes.report(0ms));
}

// One group session: what is attested second is the second for everybody.
TEST(PeerReviewProcesses, case86_a_root_cannot_tell_its_children_different_things) {
  Nodes nodes(kTreeParties);
  start_tree(nodes, 1, peer_liar([](Liar& self, View request, Outbox& outbox) {
               if (type_of(request) != MessageType::kRequest || self.calls++ > 0) return;
               const Bytes outputs = [] {
                 Bytes bytes;
                 Items::append(bytes, CounterMachine::add(1));
                 return bytes;
               }();
               const Bytes body = write_step({{request}, *Items::read(outputs, 1), {}});
               for (const PartyId to : {2U, 3U})
                 outbox.send(to, write_record(self.log(EntryType::kContent, body)));
             }));
  ask_in_vain(nodes, 2);                        // of 2 and 3 only the first answers
  expect_fault(nodes, 1, FaultKind::kRequest);  // its log has the request twice
}

TEST(PeerReviewProcesses, case87_an_answer_to_what_was_not_logged_exposes) {
  Nodes nodes(kTreeParties);
  start_tree(nodes, 2, peer_liar([](Liar& self, View message, Outbox& outbox) {
               if (!is_content(message)) return;
               const auto entry = read_log_entry(payload_of(message.subspan(1)));
               const auto step = read_step(entry->body);
               const Bytes body = write_step({{}, step->outputs, {}});
               outbox.send(1, write_record(self.log(EntryType::kResponse, body)));
             }));
  ask_in_vain(nodes);
  expect_fault(nodes, 2, FaultKind::kQueue);
}

TEST(PeerReviewProcesses, case87_logging_without_an_answer_exposes) {
  Nodes nodes(kTreeParties);
  start_tree(nodes, 2, peer_liar([](Liar& self, View message, Outbox&) {
               if (peer_message(message) != PeerMessage::kRecord) return;
               const View record = message.subspan(1);
               if (read_header(record)->counter != self.calls) return;
               ++self.calls;
               self.received.emplace_back(record.begin(), record.end());
               self.position = {{kFirstSession, self.calls}};
             }));
  ask_in_vain(nodes);
  expect_fault(nodes, 2, FaultKind::kOutput);
}

TEST(PeerReviewProcesses, case88_an_answer_to_an_older_nonce_is_none) {
  Nodes nodes(kTreeParties);
  const auto options = case_options(1500ms);
  start_tree(nodes, 3,
             forger(
                 nodes.directory(),
                 [first = std::optional<Piece>(), kept = std::vector<Entry>()](
                     Piece& piece, std::vector<Entry>& entries) mutable {
                   if (first) {
                     piece = *first;
                     entries = kept;
                   }
                   first = piece;
                   first->entries.clear();
                   kept = entries;
                 },
                 options),
             options);
  expect_fault(nodes, 3, FaultKind::kSilent);
}

// Right entries, signed, with the present nonce: but the same again and again, as if much came yet.
TEST(PeerReviewProcesses, case88_old_entries_with_a_made_up_tail_are_no_answer) {
  Nodes nodes(kTreeParties);
  const auto options = case_options(1500ms);
  start_tree(nodes, 3,
             forger(
                 nodes.directory(),
                 [kept = std::vector<Entry>()](Piece& piece, std::vector<Entry>& entries) mutable {
                   if (kept.empty()) {
                     kept = entries;
                     return;
                   }
                   entries = kept;
                   piece.from = 0;
                   piece.tail = 1'000'000;
                 },
                 options),
             options);
  expect_fault(nodes, 3, FaultKind::kSilent);
}

// Its log is right, and so are its answers to its parent.
TEST(PeerReviewProcesses, a_lie_told_to_a_client_only_exposes) {
  Nodes nodes(kTreeParties);
  start_tree(nodes, 1,
             [&](PartyId, AttestationKernel& kernel, const SigningKey& key, const FaultHook&) {
               return std::make_unique<Deviant>(
                   std::make_unique<PeerNode>(kernel, nodes.directory(), key, make_counter,
                                              case_options()),
                   key, [](const SigningKey& its_key, PartyId, Bytes& message, Outbox&) {
                     auto content = read_signed(message, MessageType::kReply);
                     if (!content) return true;
                     Bytes outputs;
                     Items::append(outputs, CounterMachine::add(1000));
                     content->items = *Items::read(outputs, 1);
                     message = write_signed(its_key, *content);
                     return true;
                   });
             });
  const SigningKey key = key_of(kClient);
  ClientOptions options = nodes.client_options(1);
  options.nodes = {1};  // which it believes
  options.witnesses = {kWitness};
  options.timeout = kLong;
  Client client(nodes.directory(), key, options);
  EXPECT_EQ(CounterMachine::value_of(client.call(additions(1)).front()), 1000U);
  expect_fault(nodes, 1, FaultKind::kOutput);
}

// LEAT_TEST_KILLS, such as 200; by default a few, because each needs a system of its own.
TEST(PeerReviewProcesses, killing_any_party_at_any_point_exposes_nobody) {
  const std::size_t rounds = kills(10);
  std::mt19937 random(6);
  for (std::size_t round = 0; round < rounds; ++round) {
    Nodes nodes(kTreeParties);
    auto options = case_options(300ms);
    start_tree(nodes, 0, {}, options);
    const PartyId victim = 1 + static_cast<PartyId>(random() % kTreeParties);
    const SigningKey key = key_of(kClient);
    Client client = connect(nodes, key, 1, victim == 1 ? 500ms : std::chrono::milliseconds(kLong));
    std::uint64_t expected = 0;
    try {
      ASSERT_EQ(CounterMachine::value_of(client.call(additions(1)).back()), ++expected);
      std::jthread killer = nodes.kill_soon(victim, random);
      const auto until = std::chrono::steady_clock::now() + 40ms;
      try {
        while (std::chrono::steady_clock::now() < until)
          for (const Bytes& output : client.call(additions(1 + random() % 10)))
            EXPECT_EQ(CounterMachine::value_of(output), ++expected) << "round " << round;
      } catch (const Error&) {
        killer.join();
        throw;
      }
      killer.join();
    } catch (const Error& error) {
      EXPECT_EQ(victim, 1U) << "round " << round << ": " << error.what();
    }
    while (const auto report = nodes.report(0ms)) {
      EXPECT_TRUE(report->fault.kind == FaultKind::kSilent || report->fault.kind == kCleared)
          << "round " << round << ": " << to_string(report->fault.kind);
      EXPECT_TRUE(report->fault.evidence.empty());
    }
  }
}

}  // namespace
}  // namespace leat::trusted
