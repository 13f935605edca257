// PeerReview: whoever deviates from the protocol is found out, by witnesses that replay what it
// said (TNIC, ASPLOS 2025, algorithm 5 and appendix C.5).
//
// A tree of nodes: the root attests what clients ask, batch by batch, each node executes it, passes
// it on to its children and attests to its parent what it gave. A node's one attested stream is its
// log: each record also says how far the node has received the streams of its neighbours, so
// nothing can be sent without being logged, nor answered without having been logged before.
// Nothing is prevented; a wrong step has its effect, and is exposed at the next audit.
// docs/trusted_systems.md has the messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "leat/export.h"
#include "leat/trusted/attestation.h"
#include "leat/trusted/fault.h"
#include "leat/trusted/identity.h"
#include "leat/trusted/participant.h"
#include "leat/trusted/state_machine.h"

namespace leat::trusted {

struct PeerReviewOptions {
  struct Node {
    PartyId id = 0;                  // device number
    PartyId parent = 0;              // of the root: 0
    std::vector<PartyId> witnesses;  // who audit it; at least one of them must be correct
  };
  std::vector<Node> nodes;  // the root first, and each after its parent
  // Node i attests on session first_session + i: Role::kGroupSender there; all other nodes, all
  // witnesses and whoever judges have it as Role::kGroupReceiver.
  std::uint32_t first_session = 1;
  unsigned batch = 1;  // commands in one attested record, 1 to kMaxCommands
  // Each so many records the state's digest is attested too: evidence begins there.
  unsigned checkpoint_records = 256;
  unsigned audit_records = 256;  // in one piece of an audit
  std::chrono::milliseconds audit_period{100};
  // How long a node may owe an answer until it is suspected.
  std::chrono::milliseconds patience{2000};
};

// How a node stands with another, or with a witness.
enum class Standing : std::uint8_t {
  kTrusted,    // no reason to think otherwise; also after a suspicion that it has answered
  kSuspected,  // owes an answer: `fault` is kSilent
  kExposed,    // for good: `fault` has the evidence, which judge() verifies
};
struct StandingChange {
  PartyId node = 0;
  Standing standing = Standing::kTrusted;
  Fault fault;  // not of kTrusted
};
using StandingHook = std::function<void(const StandingChange&)>;

// A node of the tree. It answers clients itself: who does not want to believe the root alone asks
// for equal answers of several nodes. It has nothing more to do with who is exposed to it.
//
// Keeps of its log what a witness has not audited yet; a witness that never asks makes it grow.
// Owner: the caller; kernel, directory and key outlive it. The rest as Participant says; throws
// leat::Error kUnavailable when the kernel does not attest any more.
class LEAT_EXPORT PeerNode final : public Participant {
 public:
  // Throws leat::Error kInvalidArgument: no tree, the kernel's device no node of it, or sessions
  // that the kernel does not have in that role.
  PeerNode(AttestationKernel& kernel, const Directory& directory, const SigningKey& key,
           const MachineFactory& make_machine, const PeerReviewOptions& options,
           StandingHook hook = {});
  ~PeerNode() override;

  void receive(PartyId from, std::span<const std::byte> message, Time now, Outbox& outbox) override;
  void settle(Time now, Outbox& outbox) override;
  void idle(Time now, Outbox& outbox) override;

  // Records that it attested.
  std::uint64_t log_records() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Audits the nodes that name it as a witness: asks with a nonce for what they attested since,
// replays it with the reference machine, and exposes to all nodes and witnesses who deviated.
// `kernel` has all sessions as a receiver and attests nothing. As PeerNode in all else.
class LEAT_EXPORT PeerWitness final : public Participant {
 public:
  // Throws leat::Error kInvalidArgument: no tree, or sessions that the kernel does not have.
  PeerWitness(PartyId self, AttestationKernel& kernel, const Directory& directory,
              const MachineFactory& make_machine, const PeerReviewOptions& options,
              StandingHook hook = {});
  ~PeerWitness() override;

  void receive(PartyId from, std::span<const std::byte> message, Time now, Outbox& outbox) override;
  void idle(Time now, Outbox& outbox) override;

  Standing standing(PartyId node) const noexcept;
  // Records of a node's log that were replayed and found right.
  std::uint64_t audited(PartyId node) const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A third party's judgement: whom the evidence proves to have done what; no value if nothing. Needs
// nobody else: replays the accused's own signed and attested words. `kernel` has the sessions.
LEAT_EXPORT std::optional<Fault> judge(AttestationKernel& kernel, const Directory& directory,
                                       const MachineFactory& make_machine,
                                       const PeerReviewOptions& options,
                                       std::span<const std::byte> evidence);

}  // namespace leat::trusted
