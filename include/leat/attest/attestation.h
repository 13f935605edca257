// Attestation: records that prove who sent which message with which number, and the attestation
// kernel ("attestor" below) that makes and verifies them.
//
// It has two properties (TNIC, ASPLOS 2025, section 2.1). Transferable authentication: every holder
// of the session's key can verify a record, even one that a third party forwards. Non-equivocation:
// an attestor never gives a counter twice. See docs/attestation.md and docs/security.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "leat/attest_algorithm.h"
#include "leat/cxx20.h"
#include "leat/export.h"

namespace leat::trusted {

// What a record is for. The verifier states the kind that it expects, so that a record of one kind
// cannot be passed off as another.
enum class Kind : std::uint8_t {
  kSend = 1,   // a message of a protocol
  kWrite = 2,  // bytes for a place in the receiver's memory
  kRead = 3,   // memory that readers fetch and verify themselves
  kLocal = 4,  // for the caller to send by other means: a multicast, a state
  kLog = 5,    // an entry of a log (a2m.h)
  kReply = 6,  // an answer outside the order of a group's messages: receipts, catching up
  kEnd = 7,    // the last record of a stream
};

// Why an attestor refused. A call that did not return kOk has changed nothing. R18 to R24 are the
// rejects of remote attestation that an attestor itself makes (docs/remote_attestation.md). The
// texts of to_string() are for people.
enum class Verdict : std::uint8_t {
  kOk = 0,
  kLength,        // not the length that the header states, or that of no record
  kFormat,        // wrong magic, version, reserved bytes, kind or stream
  kAlgorithm,     // not the session's algorithm
  kSession,       // no such session here
  kEpoch,         // made in another epoch: sessions have been provisioned again since
  kDevice,        // not from the session's sender (a reflected record names this device)
  kKind,          // not the expected kind
  kRole,          // the session's role does not allow the call, such as a receiver's attest()
  kMac,           // forged or changed
  kCounter,       // not the next one: replayed, or earlier ones are missing
  kExhausted,     // no counter is left; the session must be provisioned again
  kEquivocation,  // a protocol message outside the sender's group session
  kNotEnabled,    // before enable(): some members may not be ready (R24)
  kSealed,        // provisioned after enable(): an attestor takes one set of keys (R18)
  kEpochReused,   // an epoch that this attestor has had before (R18)
  kDuplicate,     // a session id or key that it already has (R19)
  kBadKey,        // a key under 32 or above 64 bytes (R19)
  kBadSession,    // other fields of a Session contradict each other
  kTooLarge,      // above max_payload_bytes()
  kUnavailable,   // the attestor's process has ended, or OpenSSL failed
  kForked,        // asked in a child of fork(): the attestor stays with the process that made it
};
LEAT_EXPORT std::string_view to_string(Verdict verdict) noexcept;
// The attestor has not looked at the record, so the verdict speaks for and against nobody.
constexpr bool is_unjudged(Verdict v) noexcept {
  return v == Verdict::kNotEnabled || v == Verdict::kUnavailable || v == Verdict::kForked;
}

inline constexpr std::size_t kHeaderBytes = 64;
inline constexpr std::size_t kMacSlotBytes = 64;  // for every algorithm; the rest is zero
inline constexpr std::size_t kRecordOverheadBytes = kHeaderBytes + kMacSlotBytes;
inline constexpr std::size_t kMaxPayloadBytes = 0xffff'ffff - kRecordOverheadBytes;
inline constexpr unsigned kStreams = 16;
inline constexpr std::size_t kMinKeyBytes = 32, kMaxKeyBytes = 64;

// A record consists of header, payload and MAC slot, without gaps. Plain value.
struct RecordHeader {
  Algorithm algorithm = Algorithm::kHmacSha256;
  Kind kind = Kind::kSend;
  std::uint8_t stream = 0;  // each stream of a session has its own counter
  std::uint32_t session = 0;
  std::uint32_t device = 0;  // the device that attested it
  std::uint64_t epoch = 0;
  std::uint64_t counter = 0;  // the first is 0
  std::uint32_t payload_bytes = 0;
  std::uint32_t slot = 0;  // kWrite, kRead: the region of `offset`; else free for the sender's use
  std::uint64_t offset = 0;
};

// Returns the header if `record` is exactly one record by format and length; else no value. This
// checks nothing more: the header proves nothing until an attestor has verified the record.
LEAT_EXPORT std::optional<RecordHeader> read_header(std::span<const std::byte> record) noexcept;
inline std::span<const std::byte> payload_of(std::span<const std::byte> record) {
  return record.subspan(kHeaderBytes, record.size() - kRecordOverheadBytes);
}

enum class Role : std::uint8_t {
  kPair = 1,           // this device and `peer`; each direction has its own key and counters
  kGroupSender = 2,    // the one sender of a group
  kGroupReceiver = 3,  // receives from `peer`, the group's sender
  kLog = 4,            // attests for itself; no ordered verify
};

// What an attestor learns of a session. Plain value; the caller owns the key and wipes it.
struct Session {
  std::uint32_t id = 0;
  Role role = Role::kPair;
  Algorithm algorithm = Algorithm::kHmacSha256;
  std::uint32_t peer = 0;          // kPair: the other device; kGroupReceiver: the group's sender
  std::uint8_t streams = 1;        // 1 to 16 for kPair; 1 for others, because a group has one order
  std::span<const std::byte> key;  // the session's key, equal at all members
};

// What is attested beside the payload.
struct Statement {
  std::uint32_t session = 0;
  Kind kind = Kind::kSend;
  std::uint8_t stream = 0;
  std::uint32_t slot = 0;
  std::uint64_t offset = 0;
};

// The two parts of a record around its payload.
struct Proof {
  std::array<std::byte, kHeaderBytes> header;
  std::array<std::byte, kMacSlotBytes> mac;
};

// Assembles a record of payload.size() + kRecordOverheadBytes bytes in `record`. The payload may
// already stand in its place there.
LEAT_EXPORT void write_record(const Proof& proof, std::span<const std::byte> payload,
                              std::span<std::byte> record) noexcept;

// One of several questions for AttestationKernel::ask(), and its answer.
struct Question {
  enum class Asks : std::uint8_t { kAttest, kVerify, kVerifyStateless };

  Asks asks = Asks::kVerify;
  Statement statement;               // kAttest: all of it; else only its kind, the expected one
  std::span<const std::byte> bytes;  // kAttest: the payload; else the record
  Verdict verdict = Verdict::kUnavailable;
  Proof proof{};  // kAttest: set if the verdict is kOk
};

// The counters of a stream.
struct Counters {
  std::uint64_t next_sent = 0;      // what the next attest() gives
  std::uint64_t next_received = 0;  // what verify() expects next
};

// An attestor: the only holder of session keys and counters. LocalKernel keeps them in this
// process, leat-attestd in a process of its own (IsolatedKernel).
//
// Owner: the caller that made it; it outlives its users. Threads: any, concurrently; calls for one
// direction of one session take turns. Payloads and records belong to the caller and must not
// change during a call: first copy what a peer can write. No call throws; each returns its outcome
// as a Verdict.
class LEAT_EXPORT AttestationKernel {
 public:
  virtual ~AttestationKernel() = default;

  // Attests the payload with the stream's next counter. Sets `proof` only with kOk.
  virtual Verdict attest(const Statement& statement, std::span<const std::byte> payload,
                         Proof& proof) noexcept = 0;

  // Ordered: returns kOk only for the very record that the stream expects next, and advances the
  // stream. Only after this kOk may a message be delivered.
  virtual Verdict verify(std::span<const std::byte> record, Kind expected) noexcept = 0;

  // Stateless: returns kOk if the session's sender, or this device itself, attested the record. For
  // stored and forwarded records, any number of times. Never deliver a message because of it.
  virtual Verdict verify_stateless(std::span<const std::byte> record, Kind expected) noexcept = 0;

  // Asks several questions, with the effect of as many calls in this order and a verdict for each.
  // A refused question changes nothing, so later ordered records of its stream are refused too.
  // leat-attestd is woken once for all of them.
  virtual void ask(std::span<Question> questions) noexcept;

  // The counters of a stream; no value if that stream does not exist.
  virtual std::optional<Counters> counters(std::uint32_t session, std::uint8_t stream) noexcept = 0;
  // The session without its key; no value if it does not exist.
  virtual std::optional<Session> session(std::uint32_t id) noexcept = 0;

  virtual std::uint32_t device() const noexcept = 0;
  virtual std::uint64_t epoch() const noexcept = 0;
  virtual std::size_t max_payload_bytes() const noexcept = 0;
};

// An attestor in this process: an attacker that takes over the process gets keys and counters. It
// takes sessions until enable(), and attests and verifies from then on. In a child of fork() every
// call refuses (kForked, no value), because counters that two processes have are given twice.
class LEAT_EXPORT LocalKernel final : public AttestationKernel {
 public:
  // `device`: this device's number, not 0. `last_epoch`: the latest epoch that the device has had;
  // `epoch` must be above it. Throws leat::Error kInvalidArgument otherwise, and kResource.
  LocalKernel(std::uint32_t device, std::uint64_t epoch, std::uint64_t last_epoch = 0);
  ~LocalKernel() override;

  Verdict provision(const Session& session) noexcept;
  Verdict enable() noexcept;

  Verdict attest(const Statement& statement, std::span<const std::byte> payload,
                 Proof& proof) noexcept override;
  Verdict verify(std::span<const std::byte> record, Kind expected) noexcept override;
  Verdict verify_stateless(std::span<const std::byte> record, Kind expected) noexcept override;
  std::optional<Counters> counters(std::uint32_t session, std::uint8_t stream) noexcept override;
  std::optional<Session> session(std::uint32_t id) noexcept override;
  std::uint32_t device() const noexcept override { return device_; }
  std::uint64_t epoch() const noexcept override { return epoch_; }
  std::size_t max_payload_bytes() const noexcept override { return kMaxPayloadBytes; }

 private:
  friend class KernelTest;  // starts counters near their end
  struct Keystore;

  const std::uint32_t device_;
  const std::uint64_t epoch_;
  const std::unique_ptr<Keystore> keystore_;
};

}  // namespace leat::trusted
