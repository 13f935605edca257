// A key-value store on chain replication among nodes of which all but one may lie (TNIC, ASPLOS
// 2025, section 7 and algorithm 4; docs/trusted_systems.md has messages and limits).
//
// A client believes an answer only if all nodes of the chain gave it. So a single correct node is
// enough that no wrong answer is believed, and a single silent one that there is none.
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

#include "leat/export.h"
#include "leat/trusted/attestation.h"
#include "leat/trusted/fault.h"
#include "leat/trusted/identity.h"
#include "leat/trusted/participant.h"
#include "leat/trusted/state_machine.h"

namespace leat::trusted {

// Keys and values are any bytes, together with 3 more at most kMaxItemBytes. An output is one byte,
// KeyValueMachine::Status, and behind it, of get(), the value.
class LEAT_EXPORT KeyValueMachine final : public StateMachine {
 public:
  enum class Status : std::uint8_t { kOk = 1, kNotFound = 2, kNoCommand = 3 };

  static Bytes put(std::string_view key, std::string_view value);
  static Bytes get(std::string_view key);
  static Bytes erase(std::string_view key);
  // Of an output; no value: not found, or an output of something else.
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
  // As it was before the commands that are not kept yet, the oldest first.
  std::vector<std::pair<std::string, std::optional<std::string>>> journal_;
};

struct ChainOptions {
  // Device numbers, from the head to the tail; at least one.
  std::vector<PartyId> nodes;
  // Node i attests on session first_session + i: Role::kGroupSender there, kGroupReceiver at all
  // others.
  std::uint32_t first_session = 1;
  unsigned batch = 1;  // commands in one attested record, 1 to kMaxCommands
  // Each so many records the state's digest is attested too; its evidence begins at the last one
  // that all nodes agree on.
  unsigned checkpoint_records = 1024;
  // How long a request that a client complains about may stay without effect.
  std::chrono::milliseconds timeout{2000};
  // What the chain begins with, of one that it replaces; empty: the machine's first state.
  Bytes start;
};

// One node. The head orders and executes requests batch by batch, and attests each batch; the proof
// of execution goes down the chain, and each node verifies the proofs of all nodes before it by
// executing the batch itself, adds its own, passes all on, and answers the client.
//
// Who is found to have lied is reported once, by the hook, and nothing that it had a part in is
// executed: the chain then stands still. The configuration service (configuration.h) replaces it by
// a chain of other nodes, under a new epoch.
//
// Owner: the caller; kernel, directory and key outlive it. The rest as Participant says; throws
// leat::Error kUnavailable when the kernel does not attest any more.
class LEAT_EXPORT ChainNode final : public Participant {
 public:
  // Throws leat::Error kInvalidArgument: the kernel's device is none of the nodes, or sessions that
  // it does not have in that role, or no state to start with.
  ChainNode(AttestationKernel& kernel, const Directory& directory, const SigningKey& key,
            const MachineFactory& make_machine, const ChainOptions& options, FaultHook hook = {});
  ~ChainNode() override;

  void receive(PartyId from, std::span<const std::byte> message, Time now, Outbox& outbox) override;
  void settle(Time now, Outbox& outbox) override;
  void idle(Time now, Outbox& outbox) override;

  std::uint64_t executed_records() const noexcept;
  // The state after them.
  Bytes save() const;
  // Proves to others that, and how, the state is come by.
  Bytes history() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// As judge() of a BFT system (counter.h).
LEAT_EXPORT std::optional<Fault> judge(AttestationKernel& kernel, const Directory& directory,
                                       const MachineFactory& make_machine,
                                       const ChainOptions& options,
                                       std::span<const std::byte> evidence);

}  // namespace leat::trusted
