// A replicated counter that liars cannot make lie: Byzantine fault tolerance with 2f+1 replicas
// (TNIC, ASPLOS 2025, section 7 and algorithm 3; docs/trusted_systems.md has messages and limits).
//
// The replica runs any deterministic state machine; the counter is the paper's.
#pragma once

#include <chrono>
#include <cstdint>
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

// Commands are numbers to add, 8 bytes little-endian; the output is the counter after it, the same
// way. Other bytes add nothing and give an empty output. Starts at 0, wraps at 2^64.
class LEAT_EXPORT CounterMachine final : public StateMachine {
 public:
  static Bytes add(std::uint64_t number);
  static std::optional<std::uint64_t> value_of(std::span<const std::byte> output) noexcept;

  void execute(std::span<const std::byte> command, Bytes& output) override;
  void keep() noexcept override { kept_ = value_; }
  void undo() noexcept override { value_ = kept_; }
  void save(Bytes& state) const override;
  [[nodiscard]] bool load(std::span<const std::byte> state) override;

 private:
  std::uint64_t value_ = 0;
  std::uint64_t kept_ = 0;
};

struct BftOptions {
  // Device numbers; the first is the leader. At least 2 f + 1.
  std::vector<PartyId> replicas;
  unsigned faults = 1;  // f
  // Replica i attests on session first_session + i: Role::kGroupSender there, kGroupReceiver at all
  // others. One stream for all, or the leader could tell each another story.
  std::uint32_t first_session = 1;
  unsigned batch = 1;  // commands in one attested record, 1 to kMaxCommands
  // Each so many records the state's digest is attested too, and what is older can be forgotten
  // once f + 1 replicas agree.
  unsigned checkpoint_records = 1024;
  // How long a request that a client complains about may stay unordered until the leader is
  // suspected.
  std::chrono::milliseconds leader_timeout{2000};
};

// One replica. The leader orders and executes requests, batch by batch, and attests each batch; a
// follower takes the batches in the order of their counter, checks requests and outputs by
// executing them itself, attests that, and tells everybody. Who is found to have lied is reported
// once, by the hook; a follower whose leader is exposed stops following it. A leader that is only
// silent is reported too, and followed if it comes back.
//
// View change is not part of the paper nor of this: the hook, called with the leader as accused, is
// where it begins. All that it needs is there: a new epoch (new sessions), save() of f+1 replicas.
//
// Owner: the caller; kernel, directory and key outlive it. The rest as Participant says; throws
// leat::Error kUnavailable when the kernel does not attest any more.
class LEAT_EXPORT BftReplica final : public Participant {
 public:
  // Throws leat::Error kInvalidArgument: fewer replicas than 2f+1, the kernel's device not among
  // them, or sessions that it does not have in that role.
  BftReplica(AttestationKernel& kernel, const Directory& directory, const SigningKey& key,
             const MachineFactory& make_machine, const BftOptions& options, FaultHook hook = {});
  ~BftReplica() override;

  void receive(PartyId from, std::span<const std::byte> message, Time now, Outbox& outbox) override;
  void settle(Time now, Outbox& outbox) override;
  void idle(Time now, Outbox& outbox) override;

  std::uint64_t executed_records() const noexcept;
  // The state after them.
  Bytes save() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A third party's judgement: whom the evidence proves to have done what; no value if nothing.
// Replays what led there. `kernel` has the sessions as a receiver, or is a replica's; it is asked
// for stateless verification only, so that evidence can be judged at any time, by anyone of them.
LEAT_EXPORT std::optional<Fault> judge(AttestationKernel& kernel, const Directory& directory,
                                       const MachineFactory& make_machine,
                                       const BftOptions& options,
                                       std::span<const std::byte> evidence);

}  // namespace leat::trusted
