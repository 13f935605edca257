// Turns a protocol that tolerates crashes into one that tolerates liars (TNIC, ASPLOS 2025, section
// 6.2, listing 1): wrappers around what a replica of a deterministic protocol sends and receives.
// Any means may carry the records; with a group session all receivers see the same order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "leat/attest/attestation.h"
#include "leat/export.h"

namespace leat {
class Message;
}

namespace leat::trusted {

// SHA-256 of a replica's state, in the protocol's own serialization.
using StateDigest = std::array<std::byte, 32>;
LEAT_EXPORT StateDigest digest_of(std::span<const std::byte> state);

// The sender's side. Attests the message, the digest of the sender's state after it, and
// `receiver_state`: the receiver's latest record that the sender has seen (empty: none yet, or the
// protocol does not use it). Returns the record to send. Throws leat::Error kUnavailable if
// `kernel` refuses, kTooLarge if the parts do not fit into one record.
LEAT_EXPORT std::vector<std::byte> send(AttestationKernel& kernel, const Statement& statement,
                                        std::span<const std::byte> message,
                                        std::span<const std::byte> my_state,
                                        std::span<const std::byte> receiver_state = {});

enum class Outcome {
  kAccepted,  // apply the message
  kRefused,   // not the sender's next record: nothing changed, and it says nothing of the sender
  kLagging,   // the sender has not seen this side's latest record: do not apply the message
  kExposed,   // the sender attested what a correct sender cannot
};

struct Received {
  Outcome outcome = Outcome::kRefused;
  Verdict verdict = Verdict::kOk;   // of kRefused: the reason
  std::vector<std::byte> message;   // of kAccepted
  std::vector<std::byte> evidence;  // of kExposed: the record, for proves()
};

// Returns the digest of the sender's state after that message: runs the protocol on a copy of the
// sender's state, and depends on nothing else. Called once, for a record that is authentic and
// next; the caller keeps or drops the new state by the outcome.
using Simulation = std::function<StateDigest(std::span<const std::byte> message)>;

// The receiver's side. `my_latest`: the latest record that this side attested, which the sender
// must have seen (empty: not required). Unless the outcome is kRefused, the record's turn is over.
// Throws leat::Error kInvalidArgument, and changes nothing, if `my_latest` is not a record.
LEAT_EXPORT Received receive(AttestationKernel& kernel, std::span<const std::byte> record,
                             Kind expected, const Simulation& simulation,
                             std::span<const std::byte> my_latest = {});

// The records that one device attests in one stream of a session.
struct RecordSource {
  std::uint32_t device = 0;
  std::uint32_t session = 0;
  std::uint8_t stream = 0;
};

// A third party's check: whether `evidence` proves that its sender left the protocol. `kernel` is a
// member of the session; `simulation` starts from the sender's state before the message.
// `receiver`: where the records come from that the sender must have seen; none: the protocol does
// not require that. Returns false for a forged record, and for one that a correct sender sends.
// That the receiver never attested a record is proven only if `kernel` is a member of that record's
// session, too.
LEAT_EXPORT bool proves(AttestationKernel& kernel, std::span<const std::byte> evidence,
                        Kind expected, const Simulation& simulation,
                        const std::optional<RecordSource>& receiver = std::nullopt);

// The record in which a message of a transport attested+X came, to keep or to forward to other
// members of the session. A view that ends with the message's lifetime; empty for other transports.
LEAT_EXPORT std::span<const std::byte> record_of(const Message& message);

}  // namespace leat::trusted
