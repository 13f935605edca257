// A party's part of a trusted system, and the process around it. A participant is pure: it gets
// messages and the time, and says what to send. So it can be tested without a process, and run by
// something other than serve().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "leat/attest/identity.h"
#include "leat/export.h"
#include "leat/options.h"

namespace leat::trusted {

// Where a participant's messages go.
class LEAT_EXPORT Outbox {
 public:
  virtual ~Outbox() = default;
  // Copies the message. For a node it is kept until that node has received it, over as many
  // connections as that takes, within ServeOptions::max_backlog_bytes; for any other party that is
  // not connected it is lost.
  virtual void send(PartyId to, std::span<const std::byte> message) = 0;
};

// Owner: the caller that runs it. Threads: one at a time. A message may be any bytes; `from` has
// proved its identity, and that the message is its next one. Calls throw only if the participant
// cannot go on (its attestor is gone).
class LEAT_EXPORT Participant {
 public:
  using Time = std::chrono::steady_clock::time_point;

  virtual ~Participant() = default;
  virtual void receive(PartyId from, std::span<const std::byte> message, Time now,
                       Outbox& outbox) = 0;
  // Called when all messages that have arrived so far were passed to receive(): does what is
  // cheaper for all of them together, such as one ask() of the attestor.
  virtual void settle(Time, Outbox&) {}
  // Called at least once in kTick while nothing has arrived since the last settle().
  virtual void idle(Time now, Outbox& outbox) = 0;

  static constexpr std::chrono::milliseconds kTick{20};
};

struct ServeOptions {
  PartyId self = 0;
  std::uint64_t epoch = 0;     // that of the attestation kernel
  std::vector<PartyId> nodes;  // all nodes of the system
  leat::Options channel;       // for each connection; `timeout` is overridden
  std::size_t max_backlog_bytes = std::size_t{64}
                                  << 20;  // what is kept for a peer; with more it is cut off
  // How long a peer may be connected without having proved who it is. At most so many newcomers may
  // be in that state: another one replaces the oldest.
  std::chrono::milliseconds attach_timeout{5000};
  static constexpr std::size_t kMostStrangers = 64;
};

// Runs a participant: listens at its address in the directory, connects to the nodes before it in
// the list, accepts the later ones and clients, and moves messages until `stop` returns true;
// `stop` is called between messages and at least once in kTick. Drops a peer that breaks the
// protocol or goes away. Keeps trying to connect to a node that is absent, without delaying
// anything else, and resumes where a connection was lost, unless the node was started again.
// Blocks, at the end also for connection attempts under way. Throws what the participant throws;
// kInvalidArgument for a node without an address; kAddress.
LEAT_EXPORT void serve(Participant& participant, const Directory& directory, const SigningKey& key,
                       const ServeOptions& options, const std::function<bool()>& stop);

}  // namespace leat::trusted
