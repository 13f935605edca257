// The messages of the trusted systems, little-endian; docs/trusted_systems.md has their bytes.
// Reading checks lengths and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "leat/attest/attestation.h"
#include "leat/attest/identity.h"
#include "leat/attest/recipe.h"
#include "leat/trusted/state_machine.h"

namespace leat::trusted::detail {

using View = std::span<const std::byte>;

inline constexpr std::size_t kSignatureBytes = std::tuple_size_v<Signature>;
// The most requests that a client may have under way: nodes keep so many of each client that wait
// to be ordered, which makes 4 MiB, and so many answers, within so many bytes.
inline constexpr std::size_t kMaxUnderWay = 16;
inline constexpr std::size_t kMaxKeptAnswerBytes = std::size_t{4} << 20;

enum class MessageType : std::uint8_t {
  kAttach = 1,      // the connecting side's proof of its identity: introduction.h
  kRequest = 2,     // a client's commands
  kOrder = 3,       // the attested record of the leader or head
  kExecuted = 4,    // a follower's proof of execution, and the record that it executed
  kReply = 5,       // a node's answer to a client
  kEvidence = 6,    // the reason why a node is exposed
  kRefused = 7,     // tells a client that its request will have no answer
  kResume = 8,      // between nodes, at first: how far each has received the other's messages
  kReceived = 9,    // between nodes: the same, from time to time
  kChallenge = 10,  // what the accepting side says first
  kAttached = 11,   // the accepting side's proof of its identity
  kNumber = 12,     // a client asks which number it may use next; a node's answer
};
// No value if it is not a message.
std::optional<MessageType> type_of(View message) noexcept;

// Commands or outputs: for each its length (2) and its bytes.
class Items {
 public:
  Items() = default;
  // No value unless `bytes` are exactly `count` items.
  static std::optional<Items> read(View bytes, std::size_t count) noexcept;
  static void append(Bytes& bytes, View item);

  std::size_t count() const noexcept { return count_; }
  View bytes() const noexcept { return bytes_; }
  // Removes and returns the first item.
  View take() noexcept;

 private:
  View bytes_;
  std::size_t count_ = 0;
};

// A message that its sender signed: kAttach, kAttached, kRequest, kReply, kRefused. Views into it.
struct Signed {
  MessageType type{};
  PartyId sender = 0;
  PartyId target = 0;  // kAttach, kAttached: the receiver; kReply, kRefused: the client
  std::uint64_t epoch = 0;
  std::uint64_t first = 0;  // the number of the first command
  // kReply: digest_of_request() of what it answers (32); else empty.
  View request;
  // kRefused: one item, the limit of a request in bytes (8), or 0 if the number is used and no
  // answer to this request is kept. kAttach, kAttached: the receiver's key of the introduction, and
  // the sender's.
  Items items;
};
std::optional<Signed> read_signed(View message, MessageType expected) noexcept;
// Only after read_signed().
bool verify_signed(const Directory& directory, View message, const Signed& content);
Bytes write_signed(const SigningKey& key, const Signed& content);
// Of who asks what under which number, whatever the epoch: a client that uses a number twice, for
// instance because its clock was set back, takes no old answer for the new request's.
StateDigest digest_of_request(const Signed& request);

// kNumber: its type, and the number (8); 0 asks.
std::optional<std::uint64_t> read_number(View message);
Bytes write_number(std::uint64_t next);

// What a replica attests of one step: the new requests, the outputs of the next commands of all
// requests so far, and at checkpoints the digest of the state after them. Views.
struct Step {
  std::vector<View> requests;
  Items outputs;
  std::optional<StateDigest> digest;
};
// The bytes of a step beside its requests and outputs, and of each of those beside itself.
inline constexpr std::size_t kStepBytes = 8 + std::tuple_size_v<StateDigest>;
inline constexpr std::size_t kBlobBytes = 4, kItemBytes = 2;
std::optional<Step> read_step(View payload);
Bytes write_step(const Step& step);

// kOrder, kExecuted, kEvidence: a type byte, then blobs, each with its length (4) and its bytes.
std::optional<std::vector<View>> read_blobs(View bytes, std::size_t most);
void append_blob(Bytes& bytes, View blob);
Bytes write_blobs(MessageType type, std::initializer_list<View> blobs);

// kOrder: its type, and the record.
Bytes write_order(View record);

// Attests `payload`. Throws leat::Error kUnavailable if the attestor refuses.
Bytes attest(AttestationKernel& kernel, const Statement& statement, View payload);

// The session on which a node attests, and the node that attests on a session. Both wrap, so each
// session is that of one number.
inline std::uint32_t session_of(std::uint32_t first_session, PartyId node) {
  return first_session + node - 1;
}
inline PartyId node_of(std::uint32_t first_session, std::uint32_t session) {
  return session - first_session + 1;
}
// Throws leat::Error kInvalidArgument, whose text begins with `party`, if the attestor lacks the
// session of one of these nodes in its role.
void check_sessions(const std::string& party, AttestationKernel& kernel,
                    std::uint32_t first_session, const std::vector<PartyId>& nodes);
// Throws the same if a counter of these sessions has moved. A node that has forgotten what its
// attestor said can neither go on with it nor start over: no counter is given or taken again.
void check_unused(const std::string& party, AttestationKernel& kernel, std::uint32_t first_session,
                  const std::vector<PartyId>& nodes);

}  // namespace leat::trusted::detail
