// The reference: what a correct node of the tree attests, given what it received; and what a
// witness, or anybody, makes of a node's signed pieces by it. Deterministic, no I/O.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "leat/trusted/peer_review.h"
#include "systems/ledger.h"
#include "systems/peer_messages.h"

namespace leat::trusted::detail {

// Throws leat::Error kInvalidArgument: no tree, bad numbers, or sessions that the kernel does not
// have.
void check_tree(AttestationKernel& kernel, const PeerReviewOptions& options);
// options.nodes.size() if it is none.
std::size_t index_of(const PeerReviewOptions& options, PartyId id);
std::uint32_t session_of(const PeerReviewOptions& options, std::size_t index);
inline bool is_checkpoint(const PeerReviewOptions& options, std::uint64_t counter) {
  return (counter + 1) % options.checkpoint_records == 0;
}

// What a node knows besides its records: the ledger, and how far it has received which stream. The
// node itself and those who replay it have the same.
class PeerState {
 public:
  PeerState(const Directory& directory, std::uint64_t epoch, const MachineFactory& make_machine,
            const PeerReviewOptions& options, std::size_t index);

  // Whether a node receives that stream: the root's, and those of its children.
  bool receives(std::uint32_t session) const;
  std::uint64_t received(std::uint32_t session) const;
  void set_received(std::uint32_t session, std::uint64_t next) { received_[session] = next; }

  // The outputs with which a content is answered: none if it is not in order, and then it is as if
  // it had not come. No value: no content, nothing to be answered.
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
  // What is given outlives it.
  PeerAudit(AttestationKernel& kernel, const Directory& directory,
            const MachineFactory& make_machine, const PeerReviewOptions& options,
            std::size_t index);

  // Begins in the middle: at a state whose digest the node attested. False: it did not.
  [[nodiscard]] bool start(View snapshot, View base);

  enum class Outcome {
    kNothing,   // nothing that this node signed, or not the next piece
    kProgress,  // right so far
    kComplete,  // right, up to the mark with the nonce that it names
    kFault,     // what no correct node signs: fault(), evidence()
  };
  // `nonce`: of the audit, if it is one's own.
  Outcome take(View message, const Nonce* nonce = nullptr);

  std::uint64_t next() const { return next_; }
  std::uint64_t received(std::uint32_t session) const { return state_.received(session); }
  FaultKind fault() const { return fault_; }
  // Of the fault.
  Bytes evidence() const;

 private:
  // Where the records of a piece stand that its kernel verified.
  using Authentic = std::set<const std::byte*>;

  Authentic authentic(const Piece& piece) const;
  std::optional<FaultKind> replay(View record, const std::vector<View>& received,
                                  const Authentic& authentic);
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

  // Where the evidence begins, and what it needs from there.
  Bytes snapshot_, base_;
  std::deque<Bytes> pieces_;
};

}  // namespace leat::trusted::detail
