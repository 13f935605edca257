// The state of a BFT replica: algorithm 3, both its sides.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "leat/trusted/counter.h"
#include "systems/history.h"
#include "systems/ledger.h"
#include "systems/replies.h"

namespace leat::trusted {

struct BftReplica::State {
  State(AttestationKernel& kernel, const Directory& directory, const SigningKey& key,
        const MachineFactory& make_machine, const BftOptions& options, FaultHook hook);

  void on_request(PartyId from, std::span<const std::byte> request, Time now, Outbox& outbox);
  void on_order(std::span<const std::byte> record, Outbox& outbox);
  void on_executed(std::span<const std::byte> record, Outbox& outbox);
  void on_evidence(PartyId from, std::span<const std::byte> evidence, Outbox& outbox);

  // The leader: attests what waits, full batches only or the rest too.
  void order(bool also_short, Outbox& outbox);
  // A follower: gives up on the leader if a complaint has waited too long.
  void look_at_complaints(Time now);

  bool leads() const { return self == 0; }
  PartyId id(std::size_t index) const { return options.replicas[index]; }
  bool is_checkpoint(std::uint64_t counter) const {
    return (counter + 1) % options.checkpoint_records == 0;
  }

  AttestationKernel& kernel;
  const Directory& directory;
  const SigningKey& key;
  const MachineFactory make_machine;
  const BftOptions options;
  const FaultHook hook;
  std::size_t self = 0;  // index in options.replicas

  detail::Ledger ledger;
  detail::History history;
  detail::Replies replies;
  std::uint64_t executed = 0;  // records of the leader

 private:
  // What this replica found for a record, for comparison with what others say.
  struct Result {
    Bytes outputs;
    std::size_t count = 0;
    std::optional<StateDigest> digest;
  };
  struct Peer {
    std::uint64_t acknowledged = 0;  // records that its proofs of execution cover
    bool accused = false;            // nothing that it says counts any more
    bool was_judge = false;          // it has sent evidence
  };
  struct Complaint {
    std::uint64_t first = 0;
    Time until;
  };

  std::uint64_t acknowledged_by_quorum() const;
  void finish_step(std::span<const std::byte> record, Result result, Bytes* snapshot);
  void reply_acknowledged(Outbox& outbox);
  void accuse(std::size_t index, FaultKind kind, std::span<const std::byte> record,
              Outbox& outbox);
  void report(std::size_t index, FaultKind kind, Bytes evidence, Outbox* outbox);

  std::vector<Peer> peers_;
  std::deque<Result> results_;  // of the last records, the latest at the back
  Bytes fresh_;                 // blobs: the leader's requests that no record has yet
  std::size_t fresh_count_ = 0;
  std::deque<std::pair<std::uint64_t, detail::Done>> unanswered_;  // the leader's, by record
  std::map<PartyId, Complaint> complaints_;
};

// One record of the leader, checked and executed: no value if it is right. At a checkpoint sets
// `snapshot` to the state after it.
std::optional<FaultKind> execute_record(detail::Ledger& ledger, std::span<const std::byte> payload,
                                        unsigned batch, bool is_checkpoint, Bytes& snapshot);
// Whether what a follower attested has the right form, and says the same.
std::optional<FaultKind> check_executed(std::span<const std::byte> payload,
                                        std::span<const std::byte> outputs, std::size_t count,
                                        const std::optional<StateDigest>& digest);

}  // namespace leat::trusted
