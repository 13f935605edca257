#include "trusted/parts/messages.h"

#include <algorithm>
#include <string>

#include "base/wire.h"
#include "leat/error.h"

namespace leat::trusted::detail {
namespace {

using leat::detail::WireReader;
using leat::detail::WireWriter;

// Type, version, count (2), sender, target (4 each), epoch, first (8 each). In a reply the digest
// of the request follows.
constexpr std::size_t kSignedHeaderBytes = 28;
constexpr std::size_t kRequestDigestBytes = std::tuple_size_v<StateDigest>;
constexpr std::uint8_t kVersion = 3;
constexpr std::size_t kMaxReplyBytes = kMaxCommands * (kMaxItemBytes + 2) + 128;
// Requests (2), outputs (2), whether there is a digest (1), zeros (3).
constexpr std::size_t kStepHeaderBytes = 8;

template <typename Number>
void append_number(Bytes& bytes, Number value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof value);
  WireWriter(std::span(bytes).subspan(at)).number(value);
}

}  // namespace

std::optional<MessageType> type_of(View message) noexcept {
  if (message.empty()) return std::nullopt;
  const auto type = std::to_integer<std::uint8_t>(message[0]);
  if (type < 1 || type > static_cast<std::uint8_t>(MessageType::kNumber)) return std::nullopt;
  return static_cast<MessageType>(type);
}

std::optional<Items> Items::read(View bytes, std::size_t count) noexcept {
  Items items;
  items.bytes_ = bytes;
  items.count_ = count;
  for (std::size_t i = 0; i < count; ++i) {
    if (bytes.size() < kItemBytes) return std::nullopt;
    const std::size_t length = WireReader(bytes).number<std::uint16_t>();
    if (length > kMaxItemBytes || length > bytes.size() - kItemBytes) return std::nullopt;
    bytes = bytes.subspan(kItemBytes + length);
  }
  if (!bytes.empty()) return std::nullopt;
  return items;
}

void Items::append(Bytes& bytes, View item) {
  append_number(bytes, static_cast<std::uint16_t>(item.size()));
  bytes.insert(bytes.end(), item.begin(), item.end());
}

View Items::take() noexcept {
  const std::size_t length = WireReader(bytes_).number<std::uint16_t>();
  const View item = bytes_.subspan(kItemBytes, length);
  bytes_ = bytes_.subspan(kItemBytes + length);
  --count_;
  return item;
}

std::optional<Signed> read_signed(View message, MessageType expected) noexcept {
  const std::size_t most = expected == MessageType::kReply ? kMaxReplyBytes : kMaxRequestBytes;
  const std::size_t digest = expected == MessageType::kReply ? kRequestDigestBytes : 0;
  if (message.size() < kSignedHeaderBytes + digest + kSignatureBytes || message.size() > most)
    return std::nullopt;
  WireReader reader(message);
  Signed content;
  content.type = static_cast<MessageType>(reader.number<std::uint8_t>());
  const auto version = reader.number<std::uint8_t>();
  const std::size_t count = reader.number<std::uint16_t>();
  content.sender = reader.number<std::uint32_t>();
  content.target = reader.number<std::uint32_t>();
  content.epoch = reader.number<std::uint64_t>();
  content.first = reader.number<std::uint64_t>();
  content.request = reader.bytes(digest);
  const View body = reader.bytes(message.size() - kSignedHeaderBytes - digest - kSignatureBytes);
  const auto items = Items::read(body, count);
  if (content.type != expected || version != kVersion || !items || count == 0 ||
      count > kMaxCommands || content.first > ~std::uint64_t{0} - kMaxCommands)
    return std::nullopt;
  content.items = *items;
  return content;
}

bool verify_signed(const Directory& directory, View message, const Signed& content) {
  const std::size_t bytes = message.size() - kSignatureBytes;
  return directory.verify(content.sender, message.first(bytes), message.subspan(bytes));
}

Bytes write_signed(const SigningKey& key, const Signed& content) {
  const View body = content.items.bytes();
  const std::size_t signed_bytes = kSignedHeaderBytes + content.request.size() + body.size();
  Bytes message(signed_bytes + kSignatureBytes);
  WireWriter writer(message);
  writer.number(static_cast<std::uint8_t>(content.type));
  writer.number(kVersion);
  writer.number(static_cast<std::uint16_t>(content.items.count()));
  writer.number(content.sender);
  writer.number(content.target);
  writer.number(content.epoch);
  writer.number(content.first);
  writer.bytes(content.request, content.request.size());
  writer.bytes(body, body.size());
  writer.bytes(key.sign(View(message).first(signed_bytes)), kSignatureBytes);
  return message;
}

StateDigest digest_of_request(const Signed& request) {
  const View body = request.items.bytes();
  Bytes bytes;
  bytes.reserve(14 + body.size());
  append_number(bytes, request.sender);
  append_number(bytes, request.first);
  append_number(bytes, static_cast<std::uint16_t>(request.items.count()));
  bytes.insert(bytes.end(), body.begin(), body.end());
  return digest_of(bytes);
}

std::optional<std::uint64_t> read_number(View message) {
  if (type_of(message) != MessageType::kNumber || message.size() != 1 + sizeof(std::uint64_t))
    return std::nullopt;
  return WireReader(message.subspan(1)).number<std::uint64_t>();
}

Bytes write_number(std::uint64_t next) {
  Bytes message{static_cast<std::byte>(MessageType::kNumber)};
  append_number(message, next);
  return message;
}

std::optional<Step> read_step(View payload) {
  if (payload.size() < kStepHeaderBytes) return std::nullopt;
  WireReader header(payload);
  const std::size_t requests = header.number<std::uint16_t>();
  const std::size_t outputs = header.number<std::uint16_t>();
  const auto with_digest = header.number<std::uint8_t>();
  if (with_digest > 1 || !header.zeros(3)) return std::nullopt;
  View rest = payload.subspan(kStepHeaderBytes);
  Step step;
  for (std::size_t i = 0; i < requests; ++i) {
    if (rest.size() < kBlobBytes) return std::nullopt;
    const std::size_t length = WireReader(rest).number<std::uint32_t>();
    if (length > rest.size() - kBlobBytes) return std::nullopt;
    step.requests.push_back(rest.subspan(kBlobBytes, length));
    rest = rest.subspan(kBlobBytes + length);
  }
  if (with_digest == 1) {
    if (rest.size() < std::tuple_size_v<StateDigest>) return std::nullopt;
    std::ranges::copy(rest.last<std::tuple_size_v<StateDigest>>(), step.digest.emplace().begin());
    rest = rest.first(rest.size() - std::tuple_size_v<StateDigest>);
  }
  const auto items = Items::read(rest, outputs);
  if (!items) return std::nullopt;
  step.outputs = *items;
  return step;
}

Bytes write_step(const Step& step) {
  Bytes payload;
  append_number(payload, static_cast<std::uint16_t>(step.requests.size()));
  append_number(payload, static_cast<std::uint16_t>(step.outputs.count()));
  append_number(payload, std::uint32_t{step.digest ? 1U : 0U});
  for (const View request : step.requests) append_blob(payload, request);
  const View outputs = step.outputs.bytes();
  payload.insert(payload.end(), outputs.begin(), outputs.end());
  if (step.digest) payload.insert(payload.end(), step.digest->begin(), step.digest->end());
  return payload;
}

std::optional<std::vector<View>> read_blobs(View bytes, std::size_t most) {
  std::vector<View> blobs;
  while (!bytes.empty()) {
    if (bytes.size() < kBlobBytes || blobs.size() == most) return std::nullopt;
    const std::size_t length = WireReader(bytes).number<std::uint32_t>();
    if (length > bytes.size() - kBlobBytes) return std::nullopt;
    blobs.push_back(bytes.subspan(kBlobBytes, length));
    bytes = bytes.subspan(kBlobBytes + length);
  }
  return blobs;
}

void append_blob(Bytes& bytes, View blob) {
  append_number(bytes, static_cast<std::uint32_t>(blob.size()));
  bytes.insert(bytes.end(), blob.begin(), blob.end());
}

Bytes write_blobs(MessageType type, std::initializer_list<View> blobs) {
  Bytes bytes{static_cast<std::byte>(type)};
  for (const View blob : blobs) append_blob(bytes, blob);
  return bytes;
}

Bytes write_order(View record) {
  Bytes message(1 + record.size());
  message[0] = static_cast<std::byte>(MessageType::kOrder);
  std::ranges::copy(record, message.begin() + 1);
  return message;
}

Bytes attest(AttestationKernel& kernel, const Statement& statement, View payload) {
  Proof proof;
  const Verdict verdict = kernel.attest(statement, payload, proof);
  if (verdict != Verdict::kOk)
    throw Error(ErrorCode::kUnavailable,
                "the attestation kernel does not attest: " + std::string(to_string(verdict)));
  Bytes record(payload.size() + kRecordOverheadBytes);
  write_record(proof, payload, record);
  return record;
}

void check_sessions(const std::string& party, AttestationKernel& kernel,
                    std::uint32_t first_session, const std::vector<PartyId>& nodes) {
  for (const PartyId node : nodes) {
    const std::uint32_t id = session_of(first_session, node);
    const auto session = kernel.session(id);
    const bool own = node == kernel.device();
    if (!session || session->role != (own ? Role::kGroupSender : Role::kGroupReceiver) ||
        (!own && session->peer != node))
      throw Error(ErrorCode::kInvalidArgument, party + " needs session " + std::to_string(id) +
                                                   " as the group whose sender is device " +
                                                   std::to_string(node));
  }
}

void check_unused(const std::string& party, AttestationKernel& kernel, std::uint32_t first_session,
                  const std::vector<PartyId>& nodes) {
  for (const PartyId node : nodes) {
    const std::uint32_t id = session_of(first_session, node);
    const auto counters = kernel.counters(id, 0);
    if (!counters)
      throw Error(ErrorCode::kUnavailable,
                  party + " has an attestation kernel that tells no counters");
    const std::uint64_t moved = std::max(counters->next_sent, counters->next_received);
    if (moved > 0)
      throw Error(ErrorCode::kInvalidArgument,
                  party + " needs an attestation kernel that nobody has used, and session " +
                      std::to_string(id) + " of this one is at record " + std::to_string(moved),
                  "Provision the sessions for a new epoch: one that has lost its state takes no "
                  "part in this one any more.");
  }
}

}  // namespace leat::trusted::detail
