// The state of a BFT replica: both sides of algorithm 3.
#pragma once

#include <deque>
#include <vector>

#include "leat/trusted/counter.h"
#include "trusted/parts/history.h"
#include "trusted/parts/ledger.h"
#include "trusted/parts/orderer.h"
#include "trusted/parts/replies.h"
#include "trusted/parts/rounds.h"

namespace leat::trusted {

struct BftReplica::State {
  State(AttestationKernel& kernel, const Directory& directory, const SigningKey& key,
        const MachineFactory& make_machine, const BftOptions& options, FaultHook hook);

  void on_request(PartyId from, std::span<const std::byte> request, Time now, Outbox& outbox);
  // Takes in a record to be verified.
  void take_in(std::span<const std::byte> record);
  void settle(bool also_short, Outbox& outbox);
  void on_evidence(PartyId from, std::span<const std::byte> evidence, Outbox& outbox);

  // Of a follower: reports a complaint that has waited too long.
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
  struct Peer {
    std::uint64_t acknowledged = 0;  // records that its proofs of execution cover
    bool accused = false;            // nothing from it counts any more
    std::deque<Bytes> proofs;        // verified, from `acknowledged` on; wait for the leader's
    std::size_t accusations = 0;     // that it has sent
  };
  // For a verified record, the next of its stream.
  void on_order(const Bytes& record, Outbox& outbox);
  void on_executed(const Bytes& record, std::size_t index, Outbox& outbox);
  // Of a follower: the next proofs, as far as the leader's records are executed.
  void take_proofs(std::size_t index, Outbox& outbox);
  // Of the leader: executes waiting requests; only full batches unless `also_short`.
  void order(bool also_short);
  std::uint64_t acknowledged_by_quorum() const;
  void finish_step(detail::Result result);
  void accuse(std::size_t index, FaultKind kind, std::span<const std::byte> record, Outbox& outbox);
  void report(std::size_t index, FaultKind kind, Bytes evidence, Outbox& outbox);

  std::vector<Peer> peers_;
  detail::Intake intake_;
  detail::Outgoing outgoing_;
  detail::Orderer orderer_;
  detail::Complaints complaints_;
  std::deque<detail::Result> results_;  // of the last records, the latest at the end
  std::size_t results_bytes_ = 0;
};

}  // namespace leat::trusted
