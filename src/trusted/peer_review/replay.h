// The reference: what a correct node of the tree attests, given what it received, and the verdict
// on a node's signed pieces that follows from it. Deterministic, no I/O.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "leat/trusted/peer_review.h"
#include "trusted/parts/ledger.h"
#include "trusted/peer_review/messages.h"

namespace leat::trusted::detail {

// Throws leat::Error kInvalidArgument if the nodes do not form a tree, for impossible numbers, or
// if the attestor lacks a session.
void check_tree(AttestationKernel& kernel, const PeerReviewOptions& options);
// Throws the same if one of the nodes' sessions has been used.
void check_unused(AttestationKernel& kernel, const PeerReviewOptions& options);
// options.nodes.size() if it is not a node.
std::size_t index_of(const PeerReviewOptions& options, PartyId id);
std::uint32_t session_of(const PeerReviewOptions& options, std::size_t index);
inline bool is_checkpoint(const PeerReviewOptions& options, std::uint64_t counter) {
  return (counter + 1) % options.checkpoint_records == 0;
}

// What a node knows beside its records: the ledger, and how far it has received each stream. A node
// and those that replay it have the same.
class PeerState {
 public:
  PeerState(const Directory& directory, std::uint64_t epoch, const MachineFactory& make_machine,
            const PeerReviewOptions& options, std::size_t index);

  // Whether a node receives that stream: the root's, and those of its children.
  bool receives(std::uint32_t session) const;
  std::uint64_t received(std::uint32_t session) const;
  void set_received(std::uint32_t session, std::uint64_t next) { received_[session] = next; }

  // The outputs that answer a content; none if it is not in order, and then it has no effect. No
  // value if it is not a content, and needs no answer.
  std::optional<std::pair<Bytes, std::size_t>> answer(View root_record);

  Ledger& ledger() { return ledger_; }
  Bytes save() const;
  [[nodiscard]] bool load(View state);

 private:
  const PeerReviewOptions& options_;
  const std::size_t index_;
  Ledger ledger_;
  std::map<std::uint32_t, std::uint64_t> received_;
};

// Replays one node's log from its signed pieces.
class PeerAudit {
 public:
  // The arguments must outlive it.
  PeerAudit(AttestationKernel& kernel, const Directory& directory,
            const MachineFactory& make_machine, const PeerReviewOptions& options,
            std::size_t index);

  // Begins in the middle, at a state whose digest the node attested. Returns false if it did not.
  [[nodiscard]] bool start(View snapshot, View base);

  enum class Outcome {
    kNothing,   // not signed by this node, or leads no further; nothing is kept of it
    kProgress,  // right so far
    kComplete,  // right, up to the mark with the given nonce
    kFault,     // what no correct node signs: see fault() and evidence()
  };
  // `nonce`: that of the auditor's own audit, if any. Then a piece must be what was asked for, with
  // the tail of the first piece for this nonce, and fit into what may be kept.
  Outcome take(View message, const Nonce* nonce = nullptr);

  // Takes an answer that a client got, to be compared with the log. kProgress: it waits for the
  // log; kFault; else kNothing: it is right, not signed by the node, too old, or too many wait.
  Outcome take_answer(View answer);
  // Begins an audit. Returns its nonce: up to the mark with it the log must have all answers that
  // wait now, because it was made of them. `salt`: what no node foresees.
  Nonce begin(View salt);
  // The same, of a nonce that was made so before.
  void begin(View salt, View digests);

  std::uint64_t next() const { return next_; }
  std::uint64_t received(std::uint32_t session) const { return state_.received(session); }
  FaultKind fault() const { return fault_; }
  // Of the fault.
  Bytes evidence() const;

 private:
  // Positions of a piece's records that the attestor has verified.
  using Authentic = std::set<const std::byte*>;

  Authentic authentic(const Piece& piece) const;
  std::optional<FaultKind> replay(View record, const std::vector<View>& received,
                                  const Authentic& authentic);
  struct Waiting {
    Bytes answer;
    StateDigest digest{};
    bool must_be_there = false;  // at the mark with nonce_
  };

  bool has_room_for(PartyId client, View answer) const;
  std::optional<FaultKind> check_done();
  std::optional<FaultKind> check_mark();
  // On an answer that is right or not.
  std::optional<FaultKind> verdict(const Waiting& waiting, bool right);

  std::optional<FaultKind> receive(const LogEntry& entry, const std::vector<View>& received,
                                   const Authentic& authentic,
                                   std::optional<std::pair<Bytes, std::size_t>>& answer);

  AttestationKernel& kernel_;
  const Directory& directory_;
  const PeerReviewOptions& options_;
  const std::size_t index_;
  PeerState state_;
  std::uint64_t next_ = 0;
  FaultKind fault_ = FaultKind::kLog;

  // Begins the evidence at the last digest that was replayed.
  void forget();

  // Where the evidence begins, and what it needs from there on.
  Bytes snapshot_, base_;
  std::deque<Bytes> pieces_;
  std::size_t pieces_bytes_ = 0;
  std::optional<std::pair<Bytes, Bytes>> last_digest_;   // snapshot and record, in this piece
  std::optional<std::pair<Nonce, std::uint64_t>> tail_;  // of the auditor's last nonce

  std::multimap<std::pair<PartyId, std::uint64_t>, Waiting> answers_;  // by client and number
  Bytes salt_, digests_;
  std::optional<Nonce> nonce_;  // of those
  Bytes wrong_answer_;          // if that is the fault
};

}  // namespace leat::trusted::detail
