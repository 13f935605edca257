// Chooses the nodes of a chain: a trusted service replaces a chain that fails its clients by
// another one under a new epoch (TNIC, ASPLOS 2025, appendix C.4; docs/trusted_systems.md has
// messages and limits).
//
// Of all nodes that may join a chain, fewer may lie or fail than a chain has nodes. Then each chain
// has a correct node, and no answer that a client believed is ever lost, however late messages are.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "leat/attest/attestation.h"
#include "leat/attest/identity.h"
#include "leat/export.h"
#include "leat/trusted/chain.h"
#include "leat/trusted/fault.h"
#include "leat/trusted/participant.h"
#include "leat/trusted/state_machine.h"

namespace leat::trusted {

struct Configuration {
  std::uint64_t epoch = 0;     // of its attestors and messages; the first is 1
  std::vector<PartyId> nodes;  // from head to tail
};

// Returns an attestor with the sessions of that epoch: node d of the configuration attests on
// session first_session + d - 1; the service, and any other party that is not a node, receives on
// all. Throws leat::Error if it has none: then a node stays out of that epoch, and the service
// waits for one. provisioned.h has one of leat-attestd daemons.
using KernelFactory = std::function<std::unique_ptr<AttestationKernel>(const Configuration&)>;

// Equal at the service and at all nodes.
struct ConfigurationOptions {
  PartyId service = 0;
  std::vector<PartyId> pool;  // the nodes to choose from; the first chain takes the first of them
  std::size_t length = 3;     // nodes in a chain; fewer nodes of the pool may lie or fail
  // How many nodes of the pool may lie, fewer than `length`. A chain is replaced only when more of
  // its nodes than can still lie have told what they executed, or all that can, however long that
  // takes. So `length - 1 - liars` of its nodes may be silent for ever.
  std::size_t liars = 1;
  ChainOptions chain;  // the configuration overrides `nodes` and `start`
  // How long a node may take to report what it executed, or to begin; and how long a client must
  // have waited until its complaint about silence counts.
  std::chrono::milliseconds patience{2000};
};

// The service. A complaint that proves a lie ends the epoch at once: evidence that judge() accepts,
// or signed answers to one request that differ. A complaint about silence ends it after `patience`.
// Then all nodes stop and report what they executed. The longest history that the head's attested
// records prove contains everything that any client believed, once one correct node has reported;
// the next chain starts from its state. A node that provably lied never joins a chain again.
// Neither does one that did not report, started again, or held the place where a request got stuck,
// as long as enough others remain.
//
// Serve it with the service first in ServeOptions::nodes and the pool behind it, at every party. It
// keeps one state and, during a replacement, the histories; a message with either must fit into
// ServeOptions::max_backlog_bytes. The service must not lie. It is needed only when something
// fails, and cannot be restarted, because it keeps nothing on disk.
// An epoch for which it gets no attestor is left out. While it gets none for any of the next
// 64, no chain runs, and it asks again and again.
// Owner: the caller; directory and key outlive it. Otherwise as for Participant.
class LEAT_EXPORT ConfigurationService final : public Participant {
 public:
  using Hook = std::function<void(const Configuration&)>;

  // Calls `hook` with each chain that begins to serve, and `faults` with each node that lied (its
  // evidence is empty if it convinces only the service) or is to blame for silence. Throws
  // leat::Error kInvalidArgument if the pool is smaller than a chain.
  ConfigurationService(const Directory& directory, const SigningKey& key,
                       const MachineFactory& make_machine, KernelFactory make_kernel,
                       const ConfigurationOptions& options, Hook hook = {}, FaultHook faults = {});
  ~ConfigurationService() override;

  void receive(PartyId from, std::span<const std::byte> message, Time now, Outbox& outbox) override;
  void idle(Time now, Outbox& outbox) override;

 private:
  struct LEAT_HIDDEN State;
  std::unique_ptr<State> state_;
};

// A node that joins the chain when the service says so, and otherwise waits. It sends the service
// the evidence that it finds. One that was killed may be started again; as its attestor is gone, or
// has gone on, it joins only in a later epoch. Otherwise as ChainNode.
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
  struct LEAT_HIDDEN State;
  std::unique_ptr<State> state_;
};

}  // namespace leat::trusted
