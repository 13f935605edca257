#include "leat/attest/recipe.h"

#include <openssl/evp.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/wire.h"
#include "leat/error.h"

namespace leat::trusted {
namespace {

// A payload: length of the message (4), message, digest of the sender's state (32), the receiver's
// record (the rest).
struct Parts {
  std::span<const std::byte> message;
  std::span<const std::byte> state;
  std::span<const std::byte> receiver_state;
};

constexpr std::size_t kLengthBytes = 4;

std::optional<Parts> take_apart(std::span<const std::byte> payload) {
  constexpr std::size_t kLeast = kLengthBytes + std::tuple_size_v<StateDigest>;
  if (payload.size() < kLeast) return std::nullopt;
  leat::detail::WireReader reader(payload);
  const std::size_t message_bytes = reader.number<std::uint32_t>();
  if (message_bytes > payload.size() - kLeast) return std::nullopt;
  Parts parts;
  parts.message = reader.bytes(message_bytes);
  parts.state = reader.bytes(std::tuple_size_v<StateDigest>);
  parts.receiver_state = reader.bytes(payload.size() - kLeast - message_bytes);
  return parts;
}

// Whether the sender did what the protocol says.
bool follows(const Parts& parts, const Simulation& simulation) {
  return std::ranges::equal(parts.state, simulation(parts.message));
}

enum class View {
  kLatest,
  kOlder,
  kNeverAttested,
  kUnknown,  // the kernel cannot tell: it is not a member of the session, or it does not answer
};

// What the sender has seen of the records of `receiver`, whose latest one has the counter `latest`.
// A correct sender passes on only what its own attestation kernel has verified.
View view_of(AttestationKernel& kernel, std::span<const std::byte> seen,
             const RecordSource& receiver, std::uint64_t latest) {
  if (seen.empty()) return View::kOlder;
  const auto header = read_header(seen);
  if (!header || header->device != receiver.device || header->session != receiver.session ||
      header->stream != receiver.stream)
    return View::kNeverAttested;
  switch (kernel.verify_stateless(seen, header->kind)) {
    case Verdict::kOk:
      return header->counter < latest ? View::kOlder : View::kLatest;
    case Verdict::kLength:
    case Verdict::kFormat:
    case Verdict::kAlgorithm:
    case Verdict::kEpoch:
    case Verdict::kDevice:
    case Verdict::kMac:
      return View::kNeverAttested;
    default:
      return View::kUnknown;
  }
}

}  // namespace

StateDigest digest_of(std::span<const std::byte> state) {
  StateDigest digest;
  if (EVP_Digest(state.data(), state.size(), reinterpret_cast<unsigned char*>(digest.data()),
                 nullptr, EVP_sha256(), nullptr) != 1)
    throw Error(ErrorCode::kSystem, "SHA-256 is not available from OpenSSL");
  return digest;
}

std::vector<std::byte> send(AttestationKernel& kernel, const Statement& statement,
                            std::span<const std::byte> message, std::span<const std::byte> my_state,
                            std::span<const std::byte> receiver_state) {
  const StateDigest digest = digest_of(my_state);
  const std::size_t most = kernel.max_payload_bytes() - kLengthBytes - digest.size();
  if (receiver_state.size() > most || message.size() > most - receiver_state.size())
    throw Error(ErrorCode::kTooLarge,
                "a message of " + std::to_string(message.size()) + " bytes with a state of " +
                    std::to_string(receiver_state.size()) + " is too large for one record");
  const std::size_t payload_bytes =
      kLengthBytes + message.size() + digest.size() + receiver_state.size();
  std::vector<std::byte> record(payload_bytes + kRecordOverheadBytes);
  const auto payload = std::span(record).subspan(kHeaderBytes, payload_bytes);
  leat::detail::WireWriter writer(payload);
  writer.number(static_cast<std::uint32_t>(message.size()));
  writer.bytes(message, message.size());
  writer.bytes(digest, digest.size());
  writer.bytes(receiver_state, receiver_state.size());

  Proof proof;
  const Verdict verdict = kernel.attest(statement, payload, proof);
  if (verdict != Verdict::kOk)
    throw Error(ErrorCode::kUnavailable,
                "cannot attest a message: " + std::string(to_string(verdict)));
  write_record(proof, payload, record);
  return record;
}

Received receive(AttestationKernel& kernel, std::span<const std::byte> record, Kind expected,
                 const Simulation& simulation, std::span<const std::byte> my_latest) {
  std::optional<RecordHeader> latest;
  if (!my_latest.empty()) {
    latest = read_header(my_latest);
    if (!latest) throw Error(ErrorCode::kInvalidArgument, "`my_latest` is not a record");
  }
  // Our own copy: the record may lie where its sender can still write.
  const std::vector<std::byte> kept(record.begin(), record.end());
  Received received;
  received.verdict = kernel.verify(kept, expected);
  if (received.verdict != Verdict::kOk) return received;
  const auto parts = take_apart(payload_of(kept));
  received.outcome = Outcome::kExposed;
  if (parts && follows(*parts, simulation)) {
    const bool up_to_date = !latest || std::ranges::equal(parts->receiver_state, my_latest);
    switch (up_to_date
                ? View::kLatest
                : view_of(kernel, parts->receiver_state,
                          {kernel.device(), latest->session, latest->stream}, latest->counter)) {
      case View::kLatest:
        received.outcome = Outcome::kAccepted;
        received.message.assign(parts->message.begin(), parts->message.end());
        break;
      case View::kOlder:
      case View::kUnknown:
        received.outcome = Outcome::kLagging;
        break;
      case View::kNeverAttested:
        break;
    }
  }
  if (received.outcome == Outcome::kExposed) received.evidence = kept;
  return received;
}

bool proves(AttestationKernel& kernel, std::span<const std::byte> evidence, Kind expected,
            const Simulation& simulation, const std::optional<RecordSource>& receiver) {
  const std::vector<std::byte> kept(evidence.begin(), evidence.end());
  if (kernel.verify_stateless(kept, expected) != Verdict::kOk) return false;
  const auto parts = take_apart(payload_of(kept));
  if (!parts || !follows(*parts, simulation)) return true;
  return receiver && view_of(kernel, parts->receiver_state, *receiver, 0) == View::kNeverAttested;
}

}  // namespace leat::trusted
