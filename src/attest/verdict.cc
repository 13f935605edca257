// Texts for people; no part of the trusted base.
#include "leat/attest/attestation.h"

namespace leat::trusted {

std::string_view to_string(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::kOk:
      return "fine";
    case Verdict::kLength:
      return "its length is not what its header says";
    case Verdict::kFormat:
      return "no record of this version";
    case Verdict::kAlgorithm:
      return "not the session's algorithm";
    case Verdict::kSession:
      return "no such session or stream";
    case Verdict::kEpoch:
      return "of another epoch";
    case Verdict::kDevice:
      return "not from the session's sender";
    case Verdict::kKind:
      return "not of the kind expected";
    case Verdict::kRole:
      return "the session's role does not allow that";
    case Verdict::kMac:
      return "forged or changed: its MAC is wrong";
    case Verdict::kCounter:
      return "not the next one: replayed, or earlier ones are missing";
    case Verdict::kExhausted:
      return "the stream's counter is at its end: provision the session again";
    case Verdict::kEquivocation:
      return "a protocol message outside its sender's group session";
    case Verdict::kNotEnabled:
      return "the attestation kernel is not enabled yet";
    case Verdict::kSealed:
      return "the attestation kernel is enabled and takes no more sessions";
    case Verdict::kEpochReused:
      return "this device has had that epoch";
    case Verdict::kDuplicate:
      return "that session id or key is there already";
    case Verdict::kBadKey:
      return "a key has 32 to 64 bytes";
    case Verdict::kBadSession:
      return "the session's fields contradict each other";
    case Verdict::kTooLarge:
      return "the payload is too large for one record";
    case Verdict::kUnavailable:
      return "the attestation kernel has ended or failed";
    case Verdict::kForked:
      return "the attestation kernel belongs to the process that this one was forked from: "
             "make one after fork()";
  }
  return "unknown";
}

}  // namespace leat::trusted
