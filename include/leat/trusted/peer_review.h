// PeerReview: witnesses replay what a node said, and so expose every node that leaves the protocol
// (TNIC, ASPLOS 2025, algorithm 5 and appendix C.5).
//
// The nodes form a tree. The root attests the clients' requests batch by batch; each node executes
// a batch, passes it to its children, and attests its outputs to its parent. A node's single
// attested stream is its log. Each record also states how far the node has received its neighbours'
// streams, so a node can send nothing without logging it, and answer nothing that it had not logged
// before. Faults are not prevented: a wrong step takes effect, and the next audit exposes it.
// docs/trusted_systems.md has the messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "leat/attest/attestation.h"
#include "leat/attest/identity.h"
#include "leat/export.h"
#include "leat/trusted/fault.h"
#include "leat/trusted/participant.h"
#include "leat/trusted/state_machine.h"

namespace leat::trusted {

struct PeerReviewOptions {
  struct Node {
    PartyId id = 0;                  // device number
    PartyId parent = 0;              // 0 for the root
    std::vector<PartyId> witnesses;  // they audit it; at least one must be correct
  };
  std::vector<Node> nodes;  // the root first, every other node after its parent
  // Node d attests on session first_session + d - 1, as Role::kGroupSender; all other nodes, all
  // witnesses and every judge have that session as Role::kGroupReceiver.
  std::uint32_t first_session = 1;
  unsigned batch = 1;  // commands in one attested record, 1 to kMaxCommands
  // Every so many records the digest of the state is attested too; evidence begins there.
  unsigned checkpoint_records = 256;
  unsigned audit_records = 256;  // records in one piece of an audit
  std::chrono::milliseconds audit_period{100};
  // How long a node may owe an answer before it is suspected; and how long it may take to answer an
  // audit to its end, in however many pieces.
  std::chrono::milliseconds patience{2000};
  std::chrono::milliseconds audit_patience{30'000};
  // The most bytes that a witness keeps of a node's pieces, to have evidence: those since the last
  // digest, so more than the node attests and receives in `checkpoint_records` records. It suspects
  // a node with more.
  std::size_t max_evidence_bytes = std::size_t{64} << 20;
};

// What a node or witness knows of a node.
enum class Standing : std::uint8_t {
  kTrusted,    // nothing speaks against it; also after it answered a suspicion
  kSuspected,  // owes an answer: `fault` is kSilent
  kExposed,    // for good; `fault` has the evidence, which judge() verifies
};
struct StandingChange {
  PartyId node = 0;
  Standing standing = Standing::kTrusted;
  Fault fault;  // unless kTrusted
};
using StandingHook = std::function<void(const StandingChange&)>;

// A node of the tree. Every node answers clients, so a client that does not trust the root alone
// can ask for equal answers of several nodes; and it can pass answers on to witnesses
// (ClientOptions::witnesses), which compare them with the node's log. A node has no further
// dealings with one that is exposed to it.
//
// It keeps the part of its log that some witness has not audited; a witness that never asks makes
// that grow. Owner: the caller; attestor, directory and key outlive it. Otherwise as for
// Participant. Calls throw leat::Error kUnavailable when the attestor no longer attests.
class LEAT_EXPORT PeerNode final : public Participant {
 public:
  // Throws leat::Error kInvalidArgument if the nodes do not form a tree, if the attestor's device
  // is not among them, if it lacks a session in its role, or if one of those sessions has been
  // used.
  PeerNode(AttestationKernel& kernel, const Directory& directory, const SigningKey& key,
           const MachineFactory& make_machine, const PeerReviewOptions& options,
           StandingHook hook = {});
  ~PeerNode() override;

  void receive(PartyId from, std::span<const std::byte> message, Time now, Outbox& outbox) override;
  void settle(Time now, Outbox& outbox) override;
  void idle(Time now, Outbox& outbox) override;

  // How many records it has attested.
  std::uint64_t log_records() const noexcept;

 private:
  struct LEAT_HIDDEN State;
  std::unique_ptr<State> state_;
};

// Audits the nodes that list it as a witness: asks each, with a nonce, for what it attested since
// the last audit, replays that on a machine of its own, and exposes deviating nodes to all nodes
// and witnesses. `kernel` has all sessions as a receiver and attests nothing. Otherwise as
// PeerNode.
class LEAT_EXPORT PeerWitness final : public Participant {
 public:
  // Throws leat::Error kInvalidArgument if the nodes do not form a tree, or if the attestor
  // lacks a session.
  PeerWitness(PartyId self, AttestationKernel& kernel, const Directory& directory,
              const MachineFactory& make_machine, const PeerReviewOptions& options,
              StandingHook hook = {});
  ~PeerWitness() override;

  void receive(PartyId from, std::span<const std::byte> message, Time now, Outbox& outbox) override;
  void idle(Time now, Outbox& outbox) override;

  Standing standing(PartyId node) const noexcept;
  // How many records of a node's log it has replayed and found right.
  std::uint64_t audited(PartyId node) const noexcept;

 private:
  struct LEAT_HIDDEN State;
  std::unique_ptr<State> state_;
};

// A third party's judgement: returns whom the evidence convicts, and of what; no value if it proves
// nothing. Needs no other party: replays what the accused itself signed and attested. `kernel` has
// the sessions.
LEAT_EXPORT std::optional<Fault> judge(AttestationKernel& kernel, const Directory& directory,
                                       const MachineFactory& make_machine,
                                       const PeerReviewOptions& options,
                                       std::span<const std::byte> evidence);

}  // namespace leat::trusted
