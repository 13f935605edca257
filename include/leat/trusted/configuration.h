// Who the nodes of a chain are: a trusted service decides, and replaces a chain that does not serve
// its clients by another, under a new epoch (TNIC, ASPLOS 2025, appendix C.4;
// docs/trusted_systems.md has messages and limits).
//
// Of all nodes that may become part of a chain, fewer may lie than a chain has: then each chain has
// a correct one, and what clients believed is never lost.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "leat/export.h"
#include "leat/trusted/attestation.h"
#include "leat/trusted/chain.h"
#include "leat/trusted/fault.h"
#include "leat/trusted/identity.h"
#include "leat/trusted/participant.h"
#include "leat/trusted/state_machine.h"

namespace leat::trusted {

struct Configuration {
  std::uint64_t epoch = 0;     // of its kernels and messages; the first is 1
  std::vector<PartyId> nodes;  // from the head to the tail
};

// Gives a kernel with the sessions of that epoch: node i of the configuration attests on session
// first_session + i; who is none of them, as the service, is a receiver of all. Throws leat::Error
// if there is none: then this party stays out of that epoch.
using KernelFactory = std::function<std::unique_ptr<AttestationKernel>(const Configuration&)>;

// Equal at the service and all nodes.
struct ConfigurationOptions {
  PartyId service = 0;
  std::vector<PartyId> pool;  // who may be a node; the chain begins with the first of them
  std::size_t length = 3;     // of a chain; in the pool fewer may lie
  ChainOptions chain;         // `nodes` and `start` are those of the configuration
  // How long a node may take to say what it executed, or to begin; and how long a client must have
  // had no answer until its complaint about that counts.
  std::chrono::milliseconds patience{2000};
};

// The service. A complaint ends an epoch at once if it proves a lie: evidence by judge(), or signed
// answers to one request that differ; one about silence after a while. Then all nodes stop and say
// what they executed. The longest history that the head's attested records prove has all that any
// client believed; its state is what the next chain begins with. Who is proven to have lied is in
// none again; who does not answer, or stood where a request got stuck, is so if there are enough
// others.
//
// Serve it with the service as the first of ServeOptions::nodes, the pool behind it, everywhere.
// Keeps one state and, while it replaces a chain, the histories; a message with either must fit
// into ServeOptions::max_backlog_bytes. It must not lie, and is needed only when something goes
// wrong; it is not meant to be restarted, because it keeps nothing on disk.
// Owner: the caller; directory and key outlive it. The rest as Participant says; throws leat::Error
// if it has no kernel for an epoch.
class LEAT_EXPORT ConfigurationService final : public Participant {
 public:
  using Hook = std::function<void(const Configuration&)>;

  // `hook`: of each chain that serves; `faults`: of each node that lied (the evidence is empty if
  // it convinces the service alone) or is to blame for silence. Throws leat::Error
  // kInvalidArgument: a pool smaller than a chain.
  ConfigurationService(const Directory& directory, const SigningKey& key,
                       const MachineFactory& make_machine, KernelFactory make_kernel,
                       const ConfigurationOptions& options, Hook hook = {}, FaultHook faults = {});
  ~ConfigurationService() override;

  void receive(PartyId from, std::span<const std::byte> message, Time now, Outbox& outbox) override;
  void idle(Time now, Outbox& outbox) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A node that is part of the chain when the service says so, and waits otherwise. Sends the service
// the evidence that it finds. One that was killed may be started again: its kernel is gone, so it
// joins in a later epoch. As ChainNode in all else.
class LEAT_EXPORT ChainMember final : public Participant {
 public:
  ChainMember(PartyId self, const Directory& directory, const SigningKey& key,
              const MachineFactory& make_machine, KernelFactory make_kernel,
              const ConfigurationOptions& options, FaultHook hook = {});
  ~ChainMember() override;

  void receive(PartyId from, std::span<const std::byte> message, Time now, Outbox& outbox) override;
  void settle(Time now, Outbox& outbox) override;
  void idle(Time now, Outbox& outbox) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace leat::trusted
