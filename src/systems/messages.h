// The messages of the trusted systems, little-endian; docs/trusted_systems.md has their bytes.
// Reading believes nothing: what it returns has the right lengths, and proves nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "leat/trusted/attestation.h"
#include "leat/trusted/identity.h"
#include "leat/trusted/recipe.h"
#include "leat/trusted/state_machine.h"

namespace leat::trusted::detail {

using View = std::span<const std::byte>;

enum class MessageType : std::uint8_t {
  kAttach = 1,    // who the sender is: the first message of whoever connected
  kRequest = 2,   // a client's commands
  kOrder = 3,     // the leader's, or head's, attested record
  kExecuted = 4,  // a follower's proof of execution, and the record that it executed
  kReply = 5,     // a node's answer to a client
  kEvidence = 6,  // why a node is exposed
  kRefused = 7,   // a node's word to a client that its request is larger than nodes can attest
};
// No value: no message.
std::optional<MessageType> type_of(View message) noexcept;

// Commands or outputs: each a length (2) and its bytes.
class Items {
 public:
  Items() = default;
  // No value unless `bytes` are exactly `count` items.
  static std::optional<Items> read(View bytes, std::size_t count) noexcept;
  static void append(Bytes& bytes, View item);

  std::size_t count() const noexcept { return count_; }
  View bytes() const noexcept { return bytes_; }
  // Takes the first item off.
  View take() noexcept;

 private:
  View bytes_;
  std::size_t count_ = 0;
};

// A message that its sender signed: kAttach, kRequest, kReply, kRefused. Views into it.
struct Signed {
  MessageType type{};
  PartyId sender = 0;
  PartyId target = 0;  // kAttach: to whom; kReply, kRefused: the client
  std::uint64_t epoch = 0;
  std::uint64_t first = 0;  // the number of the first command
  Items items;              // kRefused: one, the most bytes of a request (8)
};
std::optional<Signed> read_signed(View message, MessageType expected) noexcept;
// Only after read_signed().
bool verify_signed(const Directory& directory, View message, const Signed& content);
Bytes write_signed(const SigningKey& key, const Signed& content);

// What a replica attests of one step: requests that are new, what the next commands of all requests
// so far gave, and at checkpoints the digest of the state after them. Views.
struct Step {
  std::vector<View> requests;
  Items outputs;
  std::optional<StateDigest> digest;
};
// What a step has beside requests and outputs, and each of those beside itself.
inline constexpr std::size_t kStepBytes = 8 + std::tuple_size_v<StateDigest>;
inline constexpr std::size_t kBlobBytes = 4, kItemBytes = 2;
std::optional<Step> read_step(View payload);
Bytes write_step(const Step& step);

// kOrder, kExecuted, kEvidence: one byte of type, and the rest as blobs: length (4), bytes.
std::optional<std::vector<View>> read_blobs(View bytes, std::size_t most);
void append_blob(Bytes& bytes, View blob);
Bytes write_blobs(MessageType type, std::initializer_list<View> blobs);

// kOrder: its type, and the record.
Bytes write_order(View record);

// Attests `payload`; throws leat::Error kUnavailable if the kernel refuses.
Bytes attest(AttestationKernel& kernel, const Statement& statement, View payload);
// Whether that session is the group in which `sender` alone attests, as the kernel's device sees
// it.
bool is_group_of(AttestationKernel& kernel, std::uint32_t session, PartyId sender);

}  // namespace leat::trusted::detail
