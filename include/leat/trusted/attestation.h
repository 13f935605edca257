// Attestation: records that say who sent what as which of its messages, and the kernel that makes
// and verifies them.
//
// The two properties (TNIC, ASPLOS 2025, section 2.1): transferable authentication, because a
// record is verified with the session's key by whoever holds it, also when a third forwards it; and
// non-equivocation, because the kernel never gives a counter of a session twice.
// docs/attestation.md has the record's bytes, docs/security.md what it protects against.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "leat/export.h"

namespace leat::trusted {

// The numbers of these enumerators are those of the record's bytes.
enum class Algorithm : std::uint8_t {
  kHmacSha256 = 1,
  kHmacSha384 = 2,
  kHmacSha512 = 3,
  kAes256Gmac = 4,  // no serial hash; docs/security.md says why the counter is a nonce
};

// What a record is for. Who verifies says which kind it expects, so none can pass for another.
enum class Kind : std::uint8_t {
  kSend = 1,   // a message of a protocol
  kWrite = 2,  // bytes for a place in the receiver's memory
  kRead = 3,   // memory that others read, and verify by itself
  kLocal = 4,  // attested for who asked, to be sent by other means: a multicast, a state
  kLog = 5,    // an entry of a log
  kReply = 6,  // an answer outside the order of a group's messages: receipts, catching up
  kEnd = 7,    // nothing more comes in this stream
};

// Why a kernel refused; the R numbers are the rejects of remote attestation that it answers itself.
// The texts of to_string() are for people. Nothing was changed by a call that did not return kOk.
enum class Verdict : std::uint8_t {
  kOk = 0,
  kLength,        // shorter or longer than its header says, or than any record
  kFormat,        // magic, version, reserved bytes, unknown kind or stream
  kAlgorithm,     // not that of the session
  kSession,       // no such session
  kEpoch,         // of another epoch: sessions were provisioned anew since
  kDevice,        // not from the session's sender (a reflected record has the own device)
  kKind,          // not of the kind that was expected
  kRole,          // the session's role does not allow that, such as a receiver attesting
  kMac,           // forged or changed
  kCounter,       // not the next one: replayed, or earlier ones are missing
  kExhausted,     // the counter has come to its end; the session must be provisioned anew
  kEquivocation,  // a protocol message outside the group session of its sender
  kNotEnabled,    // before enable(): not every member is known to be ready (R24)
  kSealed,        // provisioned after enable(): one set of keys in a kernel's life (R18)
  kEpochReused,   // an epoch that this kernel has had (R18)
  kDuplicate,     // a session id or key for the second time (R19)
  kBadKey,        // a key under 32 or above 64 bytes (R19)
  kBadSession,    // other fields of a Session contradict each other
  kTooLarge,      // more than max_payload_bytes()
  kUnavailable,   // the kernel's process has ended, or the cryptographic library failed
};
LEAT_EXPORT std::string_view to_string(Verdict verdict) noexcept;

inline constexpr std::size_t kHeaderBytes = 64;
inline constexpr std::size_t kMacSlotBytes = 64;  // of every algorithm; its rest is zero
inline constexpr std::size_t kRecordOverheadBytes = kHeaderBytes + kMacSlotBytes;
inline constexpr std::size_t kMaxPayloadBytes = 0xffff'ffff - kRecordOverheadBytes;
inline constexpr unsigned kStreams = 16;
inline constexpr std::size_t kMinKeyBytes = 32, kMaxKeyBytes = 64;

// A record is header, payload, MAC slot, without gaps. Plain value.
struct RecordHeader {
  Algorithm algorithm = Algorithm::kHmacSha256;
  Kind kind = Kind::kSend;
  std::uint8_t stream = 0;  // a session's streams are counted each for itself
  std::uint32_t session = 0;
  std::uint32_t device = 0;  // that attested it
  std::uint64_t epoch = 0;
  std::uint64_t counter = 0;  // the first is 0
  std::uint32_t payload_bytes = 0;
  std::uint32_t slot = 0;  // of kWrite, kRead: region, and offset in it; else as the sender likes
  std::uint64_t offset = 0;
};

// The header of the record that `record` is, all of it and no byte more; no value if it is none.
// Only format and length were looked at: it proves nothing until a kernel has verified the record.
LEAT_EXPORT std::optional<RecordHeader> read_header(std::span<const std::byte> record) noexcept;
inline std::span<const std::byte> payload_of(std::span<const std::byte> record) {
  return record.subspan(kHeaderBytes, record.size() - kRecordOverheadBytes);
}

enum class Role : std::uint8_t {
  kPair = 1,           // this device and `peer`, each direction with its own key and counters
  kGroupSender = 2,    // the one sender of a group
  kGroupReceiver = 3,  // receives from `peer`, the group's sender
  kLog = 4,            // attests for itself; no ordered verify
};

// What a kernel is told of a session. Plain value; the key stays the caller's, to be wiped.
struct Session {
  std::uint32_t id = 0;
  Role role = Role::kPair;
  Algorithm algorithm = Algorithm::kHmacSha256;
  std::uint32_t peer = 0;    // the other device of a pair, the sender of a group for its receivers
  std::uint8_t streams = 1;  // 1 to 16 for pairs, 1 for all others: a group has one order
  std::span<const std::byte> key;  // the session's, equal at all members
};

// What is attested beside the payload.
struct Statement {
  std::uint32_t session = 0;
  Kind kind = Kind::kSend;
  std::uint8_t stream = 0;
  std::uint32_t slot = 0;
  std::uint64_t offset = 0;
};

// The two ends of a record, around the payload.
struct Proof {
  std::array<std::byte, kHeaderBytes> header;
  std::array<std::byte, kMacSlotBytes> mac;
};

// Puts a record together: `record` is payload.size() + kRecordOverheadBytes long, and the payload
// may stand at its place in it already.
LEAT_EXPORT void write_record(const Proof& proof, std::span<const std::byte> payload,
                              std::span<std::byte> record) noexcept;

// One of several questions that a kernel is asked at once, and its answer.
struct Question {
  enum class Asks : std::uint8_t { kAttest, kVerify, kVerifyStateless };

  Asks asks = Asks::kVerify;
  Statement statement;               // kAttest; of the others its kind, which is expected
  std::span<const std::byte> bytes;  // kAttest: the payload; else the record
  Verdict verdict = Verdict::kUnavailable;
  Proof proof{};  // kAttest, with kOk
};

// Where a stream stands.
struct Counters {
  std::uint64_t next_sent = 0;      // of the next attest
  std::uint64_t next_received = 0;  // that ordered verify expects
};

// An attestation kernel: the only one that holds keys and counters. Its homes are LocalKernel (this
// process) and leat-attestd (a process of its own).
//
// Owner: whoever made it; it outlives those that use it. Threads: any, at the same time; calls for
// one direction of one session take turns. Payloads and records belong to the caller, and must not
// change during the call: copy what a peer can write before. Nothing is thrown; each call says by
// its Verdict what happened.
class LEAT_EXPORT AttestationKernel {
 public:
  virtual ~AttestationKernel() = default;

  // Gives the payload the stream's next counter. `proof` is set only with kOk.
  virtual Verdict attest(const Statement& statement, std::span<const std::byte> payload,
                         Proof& proof) noexcept = 0;

  // Ordered: kOk for exactly the record that the stream expects next, whose turn is then over. The
  // only call after which a message may be delivered.
  virtual Verdict verify(std::span<const std::byte> record, Kind expected) noexcept = 0;

  // Stateless: whether the session's sender, or this device itself, attested the record. For stored
  // and forwarded ones; any number of times. Never deliver by it.
  virtual Verdict verify_stateless(std::span<const std::byte> record, Kind expected) noexcept = 0;

  // Several at once: what as many calls one after the other would do, with a verdict for each. One
  // that is refused changes nothing, so ordered records behind it in its stream are not next
  // either. A kernel in a process of its own is woken once for all of them.
  virtual void ask(std::span<Question> questions) noexcept;

  // Where a stream stands; no value if there is none such.
  virtual std::optional<Counters> counters(std::uint32_t session, std::uint8_t stream) noexcept = 0;
  // What is known of a session, its key left out; no value if there is none such.
  virtual std::optional<Session> session(std::uint32_t id) noexcept = 0;

  virtual std::uint32_t device() const noexcept = 0;
  virtual std::uint64_t epoch() const noexcept = 0;
  virtual std::size_t max_payload_bytes() const noexcept = 0;
};

// A kernel in this process: what the process can do, who takes it over can do too. Made with this
// device's number and the epoch of its sessions; takes sessions until enable(), and attests and
// verifies from then on.
class LEAT_EXPORT LocalKernel final : public AttestationKernel {
 public:
  // `last_epoch`: the latest that this device has had; `epoch` must be above. Throws leat::Error:
  // kInvalidArgument for such an epoch or device 0, kResource.
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
  friend class KernelTest;  // begins counters near their end
  struct Keystore;

  const std::uint32_t device_;
  const std::uint64_t epoch_;
  const std::unique_ptr<Keystore> keystore_;
};

}  // namespace leat::trusted
