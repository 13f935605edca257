// A node's part of a trusted system, and the process around it. The part is pure: it gets messages
// and the time, and says what is to be sent; so it can be tested without any process, and run by
// something else than serve().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "leat/export.h"
#include "leat/options.h"
#include "leat/trusted/identity.h"

namespace leat::trusted {

// Where messages go.
class LEAT_EXPORT Outbox {
 public:
  virtual ~Outbox() = default;
  // Copies the message. What is sent to a node that has not connected yet waits for it; to others
  // that are not connected it is lost.
  virtual void send(PartyId to, std::span<const std::byte> message) = 0;
};

// Owner: whoever runs it. Threads: one at a time. Messages may be anything, `from` is who has
// proved to be it. Throws only what makes the node unable to go on (its kernel is gone).
class LEAT_EXPORT Participant {
 public:
  using Time = std::chrono::steady_clock::time_point;

  virtual ~Participant() = default;
  virtual void receive(PartyId from, std::span<const std::byte> message, Time now,
                       Outbox& outbox) = 0;
  // Those were all that had come by now: what is done for all of them together, such as asking a
  // kernel once, is to be done now.
  virtual void settle(Time, Outbox&) {}
  // Nothing has arrived since the last settle(); at least each kTick.
  virtual void idle(Time now, Outbox& outbox) = 0;

  static constexpr std::chrono::milliseconds kTick{20};
};

struct ServeOptions {
  PartyId self = 0;
  std::uint64_t epoch = 0;     // as of the attestation kernel
  std::vector<PartyId> nodes;  // all of the system
  leat::Options channel;       // of each connection; `timeout` is set here
  std::size_t max_backlog_bytes = std::size_t{64} << 20;  // for a peer that takes nothing: cut off
};

// Runs a participant: listens at its address in the directory, connects to the nodes that stand
// before it in the list, accepts the others and clients, and moves messages until `stop`, asked
// between messages and each kTick, says so. A peer that speaks no sense or goes away is dropped. A
// node that is not there yet, or not any more, is tried until it comes, beside all this; what is
// sent while a connection is lost stays lost. Blocks, at the end for attempts that are under way.
// Throws what the participant throws, kInvalidArgument: a node without an address, kAddress.
LEAT_EXPORT void serve(Participant& participant, const Directory& directory, const SigningKey& key,
                       const ServeOptions& options, const std::function<bool()>& stop);

}  // namespace leat::trusted
