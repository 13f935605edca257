// From a protocol that survives crashes to one that survives liars (TNIC, section 6.2, listing 1):
// wrappers around what a replica sends and receives, for deterministic protocols. Records travel by
// whatever means; a group session makes every receiver see the same order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "leat/export.h"
#include "leat/trusted/attestation.h"

namespace leat {
class Message;
}

namespace leat::trusted {

// SHA-256 of a replica's state, in whatever bytes the protocol writes it down.
using StateDigest = std::array<std::byte, 32>;
LEAT_EXPORT StateDigest digest_of(std::span<const std::byte> state);

// The sender's side: attests message, digest of the sender's state after it, and `receiver_state`:
// the latest record of the receiver that the sender has seen (empty: none, or a protocol that does
// not ask for it). Returns the record to be sent. Throws leat::Error kUnavailable if the kernel
// refuses, kTooLarge.
LEAT_EXPORT std::vector<std::byte> send(AttestationKernel& kernel, const Statement& statement,
                                        std::span<const std::byte> message,
                                        std::span<const std::byte> my_state,
                                        std::span<const std::byte> receiver_state = {});

enum class Outcome {
  kAccepted,  // apply the message
  kRefused,   // not the sender's next record: nothing is known of the sender, and nothing changed
  kLagging,   // the sender has not seen this side's latest record: its message is not to be applied
  kExposed,   // the sender has attested what a correct one cannot: `evidence` proves it to others
};

struct Received {
  Outcome outcome = Outcome::kRefused;
  Verdict verdict = Verdict::kOk;   // of kRefused: why
  std::vector<std::byte> message;   // of kAccepted
  std::vector<std::byte> evidence;  // of kExposed: the record
};

// What the sender's state must be after that message: the protocol, run on a copy of the sender's
// state. Must depend on nothing else. Called once, for a record that is authentic and next; whether
// to keep the new state is decided by the outcome.
using Simulation = std::function<StateDigest(std::span<const std::byte> message)>;

// The receiver's side. `my_latest` is the latest record that this side attested, the one the sender
// must have seen; empty: not asked for. The record's turn is over unless it was kRefused.
LEAT_EXPORT Received receive(AttestationKernel& kernel, std::span<const std::byte> record,
                             Kind expected, const Simulation& simulation,
                             std::span<const std::byte> my_latest = {});

// A third party's side: whether `evidence` proves that its sender deviated. Needs a kernel that is
// a member of the session, and the sender's state as it was before. False: forged, or what a
// correct sender sends.
LEAT_EXPORT bool proves(AttestationKernel& kernel, std::span<const std::byte> evidence,
                        Kind expected, const Simulation& simulation);

// The record in which a message came over a transport attested+X: to be kept, or passed on to other
// members of the session. A view that ends with the message; empty for messages of other
// transports.
LEAT_EXPORT std::span<const std::byte> record_of(const Message& message);

}  // namespace leat::trusted
