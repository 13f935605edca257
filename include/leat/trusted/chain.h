// A key-value store on chain replication among nodes of which all but one may lie (TNIC, ASPLOS
// 2025, section 7 and algorithm 4; docs/trusted_systems.md has messages and limits).
//
// A client believes an answer only if every node of the chain gave it. So a single correct node
// keeps wrong answers from being believed, and a single silent node keeps every answer from being
// believed.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "leat/attest/attestation.h"
#include "leat/attest/identity.h"
#include "leat/export.h"
#include "leat/trusted/fault.h"
#include "leat/trusted/participant.h"
#include "leat/trusted/state_machine.h"

namespace leat::trusted {

// Keys and values are any bytes; together with 3 more they take at most kMaxItemBytes. An output is
// one byte, KeyValueMachine::Status; for get() the value follows it.
class LEAT_EXPORT KeyValueMachine final : public StateMachine {
 public:
  enum class Status : std::uint8_t { kOk = 1, kNotFound = 2, kNoCommand = 3 };

  static Bytes put(std::string_view key, std::string_view value);
  static Bytes get(std::string_view key);
  static Bytes erase(std::string_view key);
  // The value in an output; no value if the key was not found or the output is of another command.
  static std::optional<std::string> value_of(std::span<const std::byte> output);
  static Status status_of(std::span<const std::byte> output) noexcept;

  void execute(std::span<const std::byte> command, Bytes& output) override;
  void keep() noexcept override { journal_.clear(); }
  void undo() noexcept override;
  void save(Bytes& state) const override;
  [[nodiscard]] bool load(std::span<const std::byte> state) override;

 private:
  void remember(const std::string& key);

  std::map<std::string, std::string> values_;
  // The old values of keys that commands since the last keep() changed, the oldest first.
  std::vector<std::pair<std::string, std::optional<std::string>>> journal_;
};

struct ChainOptions {
  // Device numbers from head to tail; at least one.
  std::vector<PartyId> nodes;
  // Node d attests on session first_session + d - 1, as Role::kGroupSender; all other nodes have
  // that session as kGroupReceiver.
  std::uint32_t first_session = 1;
  unsigned batch = 1;  // commands in one attested record, 1 to kMaxCommands
  // Every so many records the digest of the state is attested too. Evidence begins at the last
  // checkpoint that all nodes agree on.
  unsigned checkpoint_records = 1024;
  // How long a request that a client complains about may remain without effect.
  std::chrono::milliseconds timeout{2000};
  // The state that a replacement chain starts with; empty: the machine's first state.
  Bytes start;
};

// One node. The head orders and executes requests batch by batch and attests each batch; this proof
// of execution travels down the chain. Each node verifies the proofs of all nodes before it by
// executing the batch itself, adds its own proof, forwards all of them, and answers the client.
//
// A node that lied is reported once, by the hook. The others execute nothing in which it had a
// part, so the chain stops; the configuration service (configuration.h) replaces it by a chain of
// other nodes under a new epoch.
//
// Owner: the caller; attestor, directory and key outlive it. Otherwise as for Participant. Calls
// throw leat::Error kUnavailable when the attestor no longer attests.
class LEAT_EXPORT ChainNode final : public Participant {
 public:
  // Throws leat::Error kInvalidArgument if the attestor's device is not among the nodes, if it
  // lacks a session in its role, if one of those sessions has been used, or if `start` is not a
  // saved state.
  ChainNode(AttestationKernel& kernel, const Directory& directory, const SigningKey& key,
            const MachineFactory& make_machine, const ChainOptions& options, FaultHook hook = {});
  ~ChainNode() override;

  void receive(PartyId from, std::span<const std::byte> message, Time now, Outbox& outbox) override;
  void settle(Time now, Outbox& outbox) override;
  void idle(Time now, Outbox& outbox) override;

  std::uint64_t executed_records() const noexcept;
  // The state after those records.
  Bytes save() const;
  // Evidence from which others can verify how this state was reached.
  Bytes history() const;

 private:
  struct LEAT_HIDDEN State;
  std::unique_ptr<State> state_;
};

// As judge() of a BFT system (counter.h).
LEAT_EXPORT std::optional<Fault> judge(AttestationKernel& kernel, const Directory& directory,
                                       const MachineFactory& make_machine,
                                       const ChainOptions& options,
                                       std::span<const std::byte> evidence);

}  // namespace leat::trusted
