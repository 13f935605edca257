// A replicated counter that tolerates liars: Byzantine fault tolerance with 2f+1 replicas (TNIC,
// ASPLOS 2025, section 7 and algorithm 3; docs/trusted_systems.md has messages and limits).
//
// The replica runs any deterministic state machine; the counter is the paper's example.
#pragma once

#include <chrono>
#include <cstdint>
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

// A command is a number to add, 8 bytes little-endian; its output is the counter after the
// addition, in the same form. Other bytes add nothing and have an empty output. The counter starts
// at 0 and wraps at 2^64.
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
  // Device numbers, the leader's first; at least 2 f + 1.
  std::vector<PartyId> replicas;
  unsigned faults = 1;  // f
  // Replica d attests on session first_session + d - 1, as Role::kGroupSender; all others have that
  // session as kGroupReceiver. A single stream for all keeps the leader from telling each replica
  // something else.
  std::uint32_t first_session = 1;
  unsigned batch = 1;  // commands in one attested record, 1 to kMaxCommands
  // Every so many records the digest of the state is attested too; once f + 1 replicas agree on it,
  // older records can be forgotten.
  unsigned checkpoint_records = 1024;
  // How long a request that a client complains about may stay unordered before the leader is
  // suspected.
  std::chrono::milliseconds leader_timeout{2000};
};

// One replica. The leader orders and executes requests batch by batch, and attests each batch. A
// follower takes the batches in the order of their counters, checks requests and outputs by
// executing them itself, attests the result, and sends it to all replicas. A replica that lied is
// reported once, by the hook; a follower whose leader is exposed stops following it. A leader that
// is only silent is reported too, and followed again when it returns.
//
// View change is part of neither the paper nor this class. It begins in the hook, when that is
// called with the leader as accused, and has what it needs: a new epoch (new sessions) and save()
// of f+1 replicas.
//
// Owner: the caller; attestor, directory and key outlive it. Otherwise as for Participant. Calls
// throw leat::Error kUnavailable when the attestor no longer attests.
class LEAT_EXPORT BftReplica final : public Participant {
 public:
  // Throws leat::Error kInvalidArgument for fewer than 2f+1 replicas, if the attestor's device is
  // not among them, if it lacks a session in its role, or if one of those sessions has been used.
  BftReplica(AttestationKernel& kernel, const Directory& directory, const SigningKey& key,
             const MachineFactory& make_machine, const BftOptions& options, FaultHook hook = {});
  ~BftReplica() override;

  void receive(PartyId from, std::span<const std::byte> message, Time now, Outbox& outbox) override;
  void settle(Time now, Outbox& outbox) override;
  void idle(Time now, Outbox& outbox) override;

  std::uint64_t executed_records() const noexcept;
  // The state after those records.
  Bytes save() const;

 private:
  struct LEAT_HIDDEN State;
  std::unique_ptr<State> state_;
};

// A third party's judgement: returns whom the evidence convicts, and of what; no value if it proves
// nothing. Replays what led to it. `kernel` has the sessions as a receiver, or is a replica's
// attestor. It is used for stateless verification only, so any member of the sessions can judge at
// any time.
LEAT_EXPORT std::optional<Fault> judge(AttestationKernel& kernel, const Directory& directory,
                                       const MachineFactory& make_machine,
                                       const BftOptions& options,
                                       std::span<const std::byte> evidence);

}  // namespace leat::trusted
